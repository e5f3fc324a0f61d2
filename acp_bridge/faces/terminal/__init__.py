"""The face of a terminal: one conversation of the core, read from the keyboard and written to the screen."""
