"""`completion/fill`: fill in the middle, below turns, above warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.FillResult:
    """Never loads, switches or extends the idle timer. A newer one of the same client ends this one."""
    params = call.params(api.FillParams)
    daemon.require_not_standby()
    entry = await daemon.slot.find(params.model)
    stopper = Stopper(daemon.slot.scheduler, call)
    return await daemon.slot.scheduler.submit(
        "fill",
        connection.caller,
        entry,
        api.LoadConfig(),
        Permission(),
        stopper.emit,
        lambda request: daemon.slot.operations.fill(request, params),
        stopper.attach,
    )
