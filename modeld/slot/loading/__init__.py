"""Loading a model: the checks before it, the load itself, and what is remembered of failures."""
