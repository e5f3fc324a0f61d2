"""`run/hold`: tools run between two turns of one prompt; counts as a waiter for its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Value:
    """Renewed by calling again; ends with `release`, with its ttl, and with the connection."""
    params = call.params(api.HoldParams)
    if params.release:
        daemon.slot.scheduler.release(connection.caller, params.run)
    else:
        daemon.slot.scheduler.hold(connection.caller, params.model, params.run)
    return api.Value()
