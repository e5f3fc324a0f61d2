"""`authenticate`: models run on this computer, so every known method succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.errors import invalid
from acp_bridge.faces.acp.methods.initialize import AUTH_METHODS
from acp_bridge.faces.acp.schema import AuthenticateParams, Empty

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> Empty:
    """Raises InvalidParams for a method that initialize did not name."""
    del server
    method = call.params(AuthenticateParams).method_id
    if method not in [known.id for known in AUTH_METHODS]:
        raise invalid("methodId", f"{method!r} is not one of the authMethods")
    return Empty()
