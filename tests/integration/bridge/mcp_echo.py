"""A small real MCP server: one tool that reads, one that changes, one that fails, one that asks the user.

Over stdio, or with `http` as its argument over HTTP on loopback (its port on standard output; it wants a token).
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("echo")


class Colour(BaseModel):
    """What the user is asked for."""

    colour: str


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


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def paint(ctx: Context) -> str:
    """Ask for a colour."""
    asked = await ctx.elicit("Which colour?", Colour)
    return f"painted {asked.data.colour}" if asked.action == "accept" else f"not painted: {asked.action}"


class Guarded:
    """Lets only those in who bring the token."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers") or ())
        if scope["type"] == "http" and headers.get(b"authorization") != b"Bearer secret":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)


def serve_http() -> None:
    """Until it is ended."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    app = Guarded(server.streamable_http_app())
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    if "http" in sys.argv:
        serve_http()
    else:
        server.run()
