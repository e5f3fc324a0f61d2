"""`logout`: there is nothing to log out of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.schema import Empty

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> Empty:
    """Always succeeds."""
    del server, call
    return Empty()
