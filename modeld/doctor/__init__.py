"""Looking for what could keep modeld from working, and a report of it that may be shown to others."""
