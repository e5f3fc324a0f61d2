"""The extension in a real VS Code. A package, so that what its modules share ends behind the last of them."""
