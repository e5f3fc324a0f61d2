"""The processes around the bridge: its children, and when it ends itself."""
