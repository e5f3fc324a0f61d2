"""`_modeld/take_over`: become the one writer of a conversation that another editor holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.schema import Empty, SessionParams

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> Empty:
    """Raises SessionUnknown. The other editor's next prompt is refused with who has it now."""
    await server.core.conversations.take_over(call.params(SessionParams).session_id)
    return Empty()
