"""Putting acp-bridge into an editor's settings, and taking it out again."""
