"""`session/explain`: the status as this session sees it; never waits for a decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Status:
    """Raises SessionClosed, StaleFence, SlotGenerationStale."""
    daemon.handles.check(connection, call.params(api.HandleParams).handle)
    return daemon.status()
