"""`library/pull_cancel`: end downloads of this daemon, whoever asked for them; what they fetched stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.daemon import Daemon
    from modeld.rpc.server import Connection
    from shared.protocol.requests import Call


async def handle(daemon: Daemon, connection: Connection, call: Call) -> api.PullCancelResult:
    """Idempotent: where nothing is fetched, nothing is cancelled."""
    return api.PullCancelResult(cancelled=daemon.jobs.cancel(call.params(api.PullCancelParams).source))
