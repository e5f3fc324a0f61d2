"""What a model may do in the workspace, one file a tool, and who allows it."""
