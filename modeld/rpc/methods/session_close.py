"""`session/close`: give a handle back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Value:
    """Raises SessionClosed when it is closed already, StaleError when it is of an older slot."""
    daemon.handles.close(connection, call.params(api.HandleParams).handle)
    return api.Value()
