"""`modeld/pull`: fetch a model into the library, by the daemon when it runs, else by this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.progress import WorkDone
from acp_bridge.faces.lsp.window import Work
from shared.diagnosis.threads import poster
from shared.errors import ModeldError
from shared.protocol import api
from shared.protocol.faults import RequestCancelled
from shared.text.secret import shown_address

#: How long the list may take to show what was fetched.
LISTED_S = 2.0

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.window import Window


async def handle(window: Window, params: wire.PullParams) -> wire.Pulled:
    """Raises DownloadFailed, DigestMismatch, DiskFull, RootUnusable.

    A pull of the daemon goes on when this window stops waiting for it; one of this process ends, and can be resumed.
    """
    work = Work(params.work_done_token)
    return await window.carry(work, lambda: _pull(window, params, work))


class Shown:
    """How far the pull is, to the request's token and to the window."""

    def __init__(self, window: Window, params: wire.PullParams) -> None:
        self._window = window
        self._source = shown_address(params.source)
        self._done = WorkDone(window.connection, params.work_done_token, f"Fetching {self._source}")

    def report(self, label: str, done: int, total: int) -> None:
        """Bytes; `total` 0 when it is not known."""
        fraction = done / total if total else None
        self._done.report(label or "downloading", fraction)
        self._tell(label or "downloading", fraction)

    def end(self) -> None:
        """Whatever happened."""
        self._done.end()
        self._tell("", None, done=True)

    def _tell(self, text: str, fraction: float | None, *, done: bool = False) -> None:
        progress = wire.Progress(
            operation="pull", model=self._source, text=text, mine=True, fraction=fraction, done=done
        )
        self._window.tell("modeld/progress", progress, latest=f"pull {self._source}")


async def _pull(window: Window, params: wire.PullParams, work: Work) -> wire.Pulled:
    from acp_bridge.cancel import TurnCancelled

    core = await window.core()
    shown = Shown(window, params)
    try:
        if core.daemon.connected:
            result = await _by_daemon(core, params, work, shown)
        else:
            result = await _here(window, params, work, shown)
    except TurnCancelled:
        raise RequestCancelled from None
    except ModeldError:
        if work.cancel.requested:
            raise RequestCancelled from None
        raise
    finally:
        shown.end()
    await core.models.look(LISTED_S)
    view = await core.models.library_view()
    listed = next((row.name for row in view.rows if row.path == result.path), result.name)
    return wire.Pulled(model=listed, path=result.path, size_bytes=result.size_bytes)


async def _by_daemon(core: Core, params: wire.PullParams, work: Work, shown: Shown) -> api.PullResult:
    asked = api.PullParams(source=params.source, digest=params.digest, name=params.name)

    def on_progress(event: api.Event) -> None:
        if isinstance(event, api.JobProgress):
            shown.report(event.label, event.done, event.total)

    return await work.cancel.race(lambda: core.daemon.call("library/pull", asked, api.PullResult, on_progress))


async def _here(window: Window, params: wire.PullParams, work: Work, shown: Shown) -> api.PullResult:
    from shared.fetch.download import Progress
    from shared.fetch.pull import pull

    post = poster()

    def on_progress(event: Progress) -> None:
        post(shown.report, event.stage, event.done, event.total)

    def fetch() -> api.PullResult:
        return pull(
            params.source,
            window.root,
            progress=on_progress,
            cancelled=lambda: work.cancel.requested,
            digest=params.digest,
            name=params.name,
        )

    return await anyio.to_thread.run_sync(fetch)
