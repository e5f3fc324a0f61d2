"""Grammars that hold an answer: tool calls and JSON schemas, as values and as text. Pure."""
