"""The MCP servers that an editor names for a session, as tools of its model."""
