"""`session/prefill_suffix`: the second step of a turn: the rest of the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import events_of
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Usage:
    """Sends `prefill` events. Raises SessionClosed, StaleError, InvalidParams (out of order), RequestCancelled."""
    held = daemon.handles.turn(connection, call.params(api.StepParams).turn)
    call.on_cancel(held.stop)
    return await held.prefill_suffix(events_of(call))
