"""`session/delete`: forget a conversation; one that is not there is deleted already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.schema import Empty, SessionParams

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> Empty:
    """Succeeds for unknown ids too."""
    session = call.params(SessionParams).session_id
    await server.core.conversations.delete(session)
    server.editor.forget(session)
    return Empty()
