"""`session/warm`: bring a prefix into memory, lowest priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.checks import require_conversation
from modeld.rpc.streaming import Stopper
from modeld.slot import operations
from modeld.slot.scheduler import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.Usage:
    """Never loads or switches; gives way to any turn."""
    params = call.params(api.WarmParams)
    require_conversation(params.messages, params.tools)
    daemon.require_not_standby()
    entry = await daemon.slot.find(params.model)
    stopper = Stopper(daemon.slot, call)
    return await daemon.slot.scheduler.submit(
        "warm",
        connection.caller,
        entry,
        api.LoadConfig(),
        Permission(),
        stopper.emit,
        lambda request: operations.warm(daemon.slot, request, params),
        stopper.attach,
    )
