"""`completion/fill`: fill in the middle, below turns, above warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import Stopper
from modeld.slot import operations
from modeld.slot.scheduler import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.FillResult:
    """Never loads, switches or extends the idle timer. A newer one of the same client ends this one."""
    params = call.params(api.FillParams)
    daemon.require_not_standby()
    entry = await daemon.slot.find(params.model)
    stopper = Stopper(daemon.slot, call)
    return await daemon.slot.scheduler.submit(
        "fill",
        connection.caller,
        entry,
        api.LoadConfig(),
        Permission(),
        stopper.emit,
        lambda request: operations.fill(daemon.slot, request, params),
        stopper.attach,
    )
