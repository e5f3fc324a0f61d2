"""One file a feature of the LSP face."""
