"""`status/watch`: the status now, then pushes as `status/changed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Status:
    """Coalesced; one that lags gets only the latest."""
    connection.watching = not call.params(api.WatchParams).stop
    return daemon.status()
