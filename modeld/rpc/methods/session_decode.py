"""`session/decode`: the last step of a turn: the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import events_of
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.TurnResult:
    """Streams the deltas; a cancel answers with the final event. Raises SessionClosed, StaleError, InvalidParams."""
    held = daemon.handles.turn(connection, call.params(api.StepParams).turn)
    call.on_cancel(held.stop)
    return await held.decode(events_of(call))
