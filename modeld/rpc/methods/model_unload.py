"""`model/unload`: unload the model; idempotent; says what it freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from modeld.slot.request import require_expected
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.UnloadResult:
    """Raises ModelBusy, SlotGenerationStale, NotOwner (on a standby)."""
    params = call.params(api.UnloadParams)
    daemon.require_not_standby()
    require_expected(daemon.slot.state, params.expect)
    stopper = Stopper(daemon.slot.scheduler, call)
    return await daemon.slot.scheduler.submit(
        "unload",
        connection.caller,
        None,
        api.LoadConfig(),
        Permission(on_busy=params.on_busy, wait_s=params.wait_s),
        stopper.emit,
        lambda request: daemon.slot.operations.unload(request, params),
        stopper.attach,
    )
