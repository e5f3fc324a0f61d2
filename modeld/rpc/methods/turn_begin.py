"""`turn/begin`: the slot for one turn whose steps its client asks for one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import events_of
from modeld.slot.caller import Permission
from shared.errors import ModelNotActive, ModelSwitchRequired, SlotGenerationStale
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.BeginResult:
    """Queues as any turn. Raises SessionClosed, StaleError, ModelBusy, QueueFull, WaitTimeout, RequestCancelled."""
    params = call.params(api.BeginParams)
    slot, handles = daemon.slot, daemon.handles
    held = handles.new_turn(connection, params.handle)
    call.on_cancel(held.stop)
    entry = slot.loads.entry_in_use()
    assert entry is not None, "a session that is not stale has a resident model"
    permission = Permission(on_busy=params.on_busy, wait_s=params.wait_s)
    caller = connection.caller

    async def live() -> None:
        try:
            await held.run(caller, entry, permission, events_of(call))
        finally:
            handles.forget(held)

    slot.spawn(live())
    try:
        await held.begun()
    except (ModelNotActive, ModelSwitchRequired) as error:  # it went while this turn waited
        actual = slot.state.generation
        raise SlotGenerationStale(expected=held.generation, actual=actual) from error
    return api.BeginResult(
        turn=held.name, generation=held.generation, num_ctx=held.num_ctx, step_gap_s=daemon.settings.step_gap
    )
