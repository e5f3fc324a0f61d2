"""`session/new`: a fresh conversation, with the complete config options from what is known at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.methods.folders import checked_folders, server_specs
from acp_bridge.faces.acp.options import mode_state
from acp_bridge.faces.acp.schema import NewSessionParams, NewSessionResult

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> NewSessionResult:
    """Never waits for modeld. Raises InvalidParams for a folder that is not absolute."""
    params = call.params(NewSessionParams)
    roots = checked_folders(params.cwd, params.additional_directories)
    live = await server.core.conversations.new(params.cwd, roots, server_specs(params.mcp_servers))
    server.opened(call, live)
    return NewSessionResult(
        session_id=live.id, modes=mode_state(live.conversation.mode), config_options=server.editor.options(live)
    )
