"""`session/open`: a handle bound to this instance and slot generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from modeld.slot.request import identity_of
from shared.catalog.identity import serves
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from modeld.slot.scheduled_request import ScheduledRequest
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.OpenResult:
    """Raises ModelNotActive, ModelSwitchRequired, and with their permission the errors of a load."""
    params = call.params(api.OpenParams)
    await daemon.own()
    slot = daemon.slot
    entry = await slot.find(params.model)
    stopper = Stopper(slot.scheduler, call)
    load = api.LoadParams(model=params.model, config=params.config)
    state = slot.state
    if state.active is not None and serves(state.active, identity_of(entry, params.config, daemon.backend)):
        return daemon.handles.open(connection)

    async def opened(request: ScheduledRequest) -> api.OpenResult:
        # Before the slot is given back: the next in the queue may want another model.
        await slot.operations.load(request, entry, load)
        return daemon.handles.open(connection)

    return await slot.scheduler.submit(
        "load",
        connection.caller,
        entry,
        params.config,
        Permission(load=params.allow_load, switch=params.allow_switch, consent=True, on_busy="fail"),
        stopper.emit,
        opened,
        stopper.attach,
    )
