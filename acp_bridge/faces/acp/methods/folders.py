"""What a session is opened with (its folders, checked, and its MCP servers), and the answer to an opening."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from msgspec import UNSET

from acp_bridge.faces.acp.errors import invalid
from acp_bridge.faces.acp.options import mode_state
from acp_bridge.faces.acp.schema import McpServer, OpenSessionResult
from acp_bridge.mcp.servers import ServerSpec

if TYPE_CHECKING:
    from acp_bridge.core.live import LiveConversation
    from acp_bridge.faces.acp.server import AcpServer

#: Key in the answer's `_meta`: which editor writes a conversation that can only be read here.
OPEN_IN = "modeld.openIn"


def opened_result(server: AcpServer, live: LiveConversation) -> OpenSessionResult:
    """The answer to load and resume."""
    return OpenSessionResult(
        modes=mode_state(live.conversation.mode),
        config_options=server.editor.options(live),
        meta={OPEN_IN: live.read_only_for} if live.read_only_for else UNSET,
    )


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
