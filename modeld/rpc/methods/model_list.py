"""`model/list`: what can run now on this backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.LibraryResult:
    """Live: the rows that this daemon can serve, with their state."""
    return await daemon.inventory(live_only=True)
