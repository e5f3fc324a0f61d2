"""`model/load`: load a model into memory; a no-op with the same generation when it is already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from modeld.slot.request import merged, require_expected
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.LoadResult:
    """Sends `session/event` with the progress. Raises the errors of a load and SlotGenerationStale."""
    params = call.params(api.LoadParams)
    await daemon.own()
    require_expected(daemon.slot.state, params.expect)
    entry = await daemon.slot.find(params.model)
    # What was configured for the model belongs to an explicit load; a turn takes what is resident.
    config = merged(params.config, await daemon.records.config(entry.name, entry.aliases))
    permission = Permission(
        load=True, switch=params.allow_switch, consent=True, on_busy=params.on_busy, wait_s=params.wait_s
    )
    stopper = Stopper(daemon.slot.scheduler, call)
    return await daemon.slot.scheduler.submit(
        "load",
        connection.caller,
        entry,
        config,
        permission,
        stopper.emit,
        lambda request: daemon.slot.operations.load(request, entry, msgspec.structs.replace(params, config=config)),
        stopper.attach,
    )
