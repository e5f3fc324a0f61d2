"""`model/describe`: capabilities and the memory plan; advice, never resident, never behind a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.slot.describe import describe
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.ModelInfo:
    """Raises ModelNotFound."""
    params = call.params(api.DescribeParams)
    return await describe(daemon.slot, params)
