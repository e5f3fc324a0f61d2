"""`model/load`: load a model into memory; a no-op with the same generation when it is already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modeld.rpc.streaming import Stopper
from modeld.slot import operations
from modeld.slot.request import merged
from modeld.slot.scheduler import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.LoadResult:
    """Sends `session/event` with the progress. Raises the errors of a load and SlotGenerationStale."""
    params = call.params(api.LoadParams)
    await daemon.own()
    operations.require_expected(daemon.slot, params.expect)
    entry = await daemon.slot.find(params.model)
    # What was configured for the model belongs to an explicit load; a turn takes what is resident.
    config = merged(params.config, await daemon.slot.records.config(entry.name, entry.aliases))
    permission = Permission(
        load=True, switch=params.allow_switch, consent=True, on_busy=params.on_busy, wait_s=params.wait_s
    )
    stopper = Stopper(daemon.slot, call)
    return await daemon.slot.scheduler.submit(
        "load",
        connection.caller,
        entry,
        config,
        permission,
        stopper.emit,
        lambda request: operations.load(daemon.slot, request, entry, msgspec.structs.replace(params, config=config)),
        stopper.attach,
    )
