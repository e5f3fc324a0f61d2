"""`library/list`: everything on disk, with the live state joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.LibraryResult:
    """Works whatever the slot does."""
    return await daemon.inventory(live_only=False)
