"""Memory: the arithmetic of a load (pure) and the machine's own numbers."""
