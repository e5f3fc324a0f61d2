"""`library/remove`: delete a model of the store, unless it is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.RemoveResult:
    """Raises ModelNotFound, ModelInUse, UnsupportedFeature (a file that is not ours)."""
    return await daemon.jobs.remove(call.params(api.RemoveParams).name)
