"""The commands of `acp-bridge` besides the faces."""
