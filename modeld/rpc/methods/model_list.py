"""`model/list`: what can run now on this backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.LibraryResult:
    """Live: the rows that this daemon can serve, with their state."""
    return await daemon.inventory(live_only=True)
