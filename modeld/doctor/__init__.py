"""Looking for what could keep modeld from working, and a redacted support bundle."""
