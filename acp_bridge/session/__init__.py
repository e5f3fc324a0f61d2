"""Conversations: their pure state, their store, and the turns in them. Knows no face."""
