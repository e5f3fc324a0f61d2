"""`library/pull_cancel`: end downloads of this daemon, whoever asked for them; what they fetched stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.PullCancelResult:
    """Idempotent: where nothing is fetched, nothing is cancelled."""
    return api.PullCancelResult(cancelled=daemon.jobs.cancel(call.params(api.PullCancelParams).source))
