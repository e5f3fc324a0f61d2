"""Finding modeld and talking to it."""
