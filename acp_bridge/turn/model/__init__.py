"""What answers in a turn: a local or a remote model, and the consent that it needs."""
