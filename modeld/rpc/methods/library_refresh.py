"""`library/refresh`: look at the folders again, then list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call

#: Seconds for a look at every folder: a drive that does not answer is named within this time.
WAIT = 2.0


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.LibraryResult:
    """New files are listed, unless that takes too long; `complete` says whether all of them have been read."""
    await anyio.to_thread.run_sync(daemon.library.refresh, WAIT)
    return await daemon.inventory(live_only=False)
