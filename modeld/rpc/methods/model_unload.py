"""`model/unload`: unload the model; idempotent; says what it freed."""

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


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.UnloadResult:
    """Raises ModelBusy, SlotGenerationStale, NotOwner (on a standby)."""
    params = call.params(api.UnloadParams)
    daemon.require_not_standby()
    operations.require_expected(daemon.slot, params.expect)
    stopper = Stopper(daemon.slot, call)
    return await daemon.slot.scheduler.submit(
        "unload",
        connection.caller,
        None,
        api.LoadConfig(),
        Permission(on_busy=params.on_busy, wait_s=params.wait_s),
        stopper.emit,
        lambda request: operations.unload(daemon.slot, request, params),
        stopper.attach,
    )
