"""The LSP face: VS Code and its like."""
