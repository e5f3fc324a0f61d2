"""`model/embed`: vectors from the one slot; never a second model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.EmbedResult:
    """Raises ModelBusy while the slot is in use (unless it waits), ModelSwitchRequired without `allow_switch`."""
    params = call.params(api.EmbedParams)
    await daemon.own()
    entry = await daemon.slot.find(params.model)
    stopper = Stopper(daemon.slot.scheduler, call)
    permission = Permission(
        load=params.allow_load or params.allow_switch,
        switch=params.allow_switch,
        consent=True,
        on_busy=params.on_busy,
        wait_s=params.wait_s,
    )
    return await daemon.slot.scheduler.submit(
        "embed",
        connection.caller,
        entry,
        params.config,
        permission,
        stopper.emit,
        lambda request: daemon.slot.operations.embed(request, entry, params),
        stopper.attach,
    )
