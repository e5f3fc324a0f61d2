"""JSON-RPC towards clients: the connection, its fence, and one file for each method."""
