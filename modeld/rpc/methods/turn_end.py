"""`turn/end`: give the slot back; what was evaluated stays warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.EndResult:
    """A step that runs is stopped. Raises SessionClosed when it is over already, StaleError."""
    held = daemon.handles.turn(connection, call.params(api.StepParams).turn)
    await held.end()
    return api.EndResult(generation=daemon.slot.machine.state.generation, session_valid=held.session_valid)
