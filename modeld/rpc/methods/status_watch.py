"""`status/watch`: the status now, then pushes as `status/changed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.Status:
    """Coalesced; one that lags gets only the latest."""
    connection.watching = not call.params(api.WatchParams).stop
    return daemon.status()
