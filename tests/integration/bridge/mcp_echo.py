"""A small real MCP server: one tool that reads, one that changes, one that fails."""

from __future__ import annotations

import os

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("echo")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(text: str) -> str:
    """Say it back."""
    return f"{os.environ.get('PREFIX', '')}{text}"


@server.tool()
def change(text: str) -> str:
    """Change something."""
    return f"changed {text}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


if __name__ == "__main__":
    server.run()
