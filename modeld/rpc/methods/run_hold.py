"""`run/hold`: tools run between two turns of one prompt; counts as a waiter for its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.Value:
    """Renewed by calling again; ends with `release`, with its ttl, and with the connection."""
    params = call.params(api.HoldParams)
    client, slot = connection.caller, daemon.slot
    if params.release:
        slot.scheduler.queue.release(client.number, params.run)
    else:
        slot.scheduler.queue.hold(client.number, client.name, params.model, params.run, slot.now())
    slot.schedule()
    return api.Value()
