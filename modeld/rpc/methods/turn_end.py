"""`turn/end`: give the slot back; what was evaluated stays warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.EndResult:
    """A step that runs is stopped. Raises SessionClosed when it is over already, StaleError."""
    held = daemon.handles.turn(connection, call.params(api.StepParams).turn)
    await held.end()
    return api.EndResult(generation=daemon.slot.state.generation, session_valid=held.session_valid)
