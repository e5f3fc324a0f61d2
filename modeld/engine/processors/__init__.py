"""How many threads an engine computes with: the cores there are, what others take of them, and what follows."""
