"""The per-user daemon that owns the hardware: at most one resident local model."""
