"""`session/close`: end what runs; the conversation stays saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.schema import Empty, SessionParams

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> Empty:
    """Raises SessionUnknown."""
    session = call.params(SessionParams).session_id
    await server.core.conversations.close(session)
    server.editor.forget(session)
    return Empty()
