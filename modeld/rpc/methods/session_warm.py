"""`session/warm`: bring a prefix into memory, lowest priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.checks import require_conversation
from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Usage:
    """Never loads or switches; gives way to any turn."""
    params = call.params(api.WarmParams)
    require_conversation(params.messages, params.tools)
    daemon.require_not_standby()
    entry = await daemon.slot.find(params.model)
    stopper = Stopper(daemon.slot.scheduler, call)
    return await daemon.slot.scheduler.submit(
        "warm",
        connection.caller,
        entry,
        api.LoadConfig(),
        Permission(),
        stopper.emit,
        lambda request: daemon.slot.operations.warm(request, params),
        stopper.attach,
    )
