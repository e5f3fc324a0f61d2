"""Conversations as they are kept: their state, their events, the store, and what runs in an open one."""
