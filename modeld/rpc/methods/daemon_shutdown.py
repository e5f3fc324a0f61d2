"""`daemon/shutdown`: drain the running turn, then cancel it, then end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Value:
    """Answered at once; the connection closes when the process ends."""
    params = call.params(api.ShutdownParams)
    call.after_response(lambda: daemon.end(params.reason or "stop", params.drain_s))
    return api.Value()
