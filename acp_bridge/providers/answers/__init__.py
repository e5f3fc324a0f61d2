"""Reads what a server streams: events, text, thoughts, calls, errors and the end."""
