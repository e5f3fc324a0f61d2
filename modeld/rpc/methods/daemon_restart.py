"""`daemon/restart`: as shutdown, and the same process starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Value:
    """Answered at once."""
    params = call.params(api.ShutdownParams)
    patience = daemon.settings.shutdown_drain if params.drain_s is None else params.drain_s
    call.after_response(lambda: daemon.succession.end("restart", patience, again=True))
    return api.Value()
