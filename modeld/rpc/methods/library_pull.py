"""`library/pull`: fetch a model into the store. The job belongs to the daemon and survives its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.PullResult:
    """Callers of one source share one job. Raises DownloadError, DiskFull, RootUnusable."""
    params = call.params(api.PullParams)

    def progress(event: api.JobProgress) -> None:
        call.peer.notify("session/event", api.EventParams(request=call.id or 0, event=event), latest=("job", call.id))

    return await daemon.jobs.pull(params, connection.caller.name, progress)
