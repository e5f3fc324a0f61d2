"""`ping`: liveness with the instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.PingResult:
    """Answered by every version, whatever runs."""
    return api.PingResult(instance=daemon.instance)
