"""What a session is opened with: its folders, checked, and its MCP servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from acp_bridge.acp.errors import invalid
from acp_bridge.acp.schema import McpServer
from acp_bridge.mcp.servers import ServerSpec


def checked_folders(cwd: str, more: Sequence[str] | None) -> list[str]:
    """The additional folders. Raises InvalidParams for one (or a cwd) that is not absolute."""
    roots = list(more or [])
    for at, folder in [("cwd", cwd), *((f"additionalDirectories[{n}]", root) for n, root in enumerate(roots))]:
        if not (PurePosixPath(folder).is_absolute() or PureWindowsPath(folder).is_absolute()):
            raise invalid(at, f"{folder!r} is not an absolute path")
    return roots


def server_specs(servers: Sequence[McpServer]) -> list[ServerSpec]:
    """The MCP servers as the core takes them."""
    return [
        ServerSpec(
            name=server.name,
            kind=server.type,
            command=server.command,
            arguments=tuple(server.args or ()),
            url=server.url,
            headers={header.name: header.value for header in server.headers or ()},
            environment={variable.name: variable.value for variable in server.env or ()},
        )
        for server in servers
    ]
