"""`_modeld/export`: a conversation as Markdown, open or only saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.schema import ExportResult, SessionParams

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> ExportResult:
    """Raises SessionUnknown."""
    from acp_bridge.conversations.export import markdown

    return ExportResult(markdown=markdown(await server.core.conversations.saved(call.params(SessionParams).session_id)))
