"""`library/refresh`: look at the folders again, then list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.LibraryResult:
    """The scan goes on in the background; `complete` says when it is done."""
    daemon.library.refresh()
    return await daemon.inventory(live_only=False)
