"""`daemon/handover`: let a newer version take the lease at a turn boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Value:
    """The lease goes with `upgrade`, and this process ends. A turn may take `drain_s`, by default `queue_wait`."""
    params = call.params(api.ShutdownParams)
    patience = daemon.settings.queue_wait if params.drain_s is None else params.drain_s
    call.after_response(lambda: daemon.succession.end("upgrade", patience))
    return api.Value()
