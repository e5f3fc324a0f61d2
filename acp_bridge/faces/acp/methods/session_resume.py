"""`session/resume`: go on with a conversation without showing it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.methods.folders import checked_folders, opened_result, server_specs
from acp_bridge.faces.acp.schema import OpenSessionParams, OpenSessionResult

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> OpenSessionResult:
    """Raises SessionUnknown."""
    params = call.params(OpenSessionParams)
    roots = checked_folders(params.cwd, params.additional_directories)
    live = await server.core.conversations.open(params.session_id, params.cwd, roots, server_specs(params.mcp_servers))
    server.opened(call, live)
    return opened_result(server, live)
