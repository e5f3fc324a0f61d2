"""Turns: their queue, their leases and the reaper of leases that leaked. Pure."""
