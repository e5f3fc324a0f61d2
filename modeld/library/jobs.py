"""Library jobs that belong to the daemon: they go on when their caller has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shared.diagnosis.threads import in_thread, poster
from shared.errors import ModeldError
from shared.protocol import api
from shared.text.secret import shown_address

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from modeld.turn.lease import TurnLease
    from shared.catalog.library import Library
    from shared.paths import DataRoot

OnProgress = Callable[[api.JobProgress], None]


#: Source, name and checksum: who asks for something else of one source is not told that it is done.
_Key = tuple[str, str | None, str | None]


def _key(params: api.PullParams) -> _Key:
    return params.source, params.name, params.digest


class _Pull:
    def __init__(self) -> None:
        self.outcome: asyncio.Future[api.PullResult] = asyncio.get_running_loop().create_future()
        self.listeners: list[OnProgress] = []
        self.last: api.JobProgress | None = None
        self.cancelled = threading.Event()


class Jobs:
    """Pulls by their source, and removals. `spawn` runs a job in a task of the daemon."""

    def __init__(
        self, root: DataRoot, library: Library, slot: Slot, spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._root = root
        self._library = library
        self._slot = slot
        self._spawn = spawn
        self._pulls: dict[_Key, _Pull] = {}
        self._ending = threading.Event()

    async def pull(self, params: api.PullParams, holder: str, progress: OnProgress) -> api.PullResult:
        """Join the pull of this source, name and checksum or begin it. Raises DownloadError, DiskFull, RootUnusable."""
        key = _key(params)
        job = self._pulls.get(key)
        if job is None:
            job = self._pulls[key] = _Pull()
            self._spawn(self._run(job, params, holder))
        elif job.last is not None:
            progress(job.last)
        job.listeners.append(progress)
        try:
            return await asyncio.shield(job.outcome)
        finally:
            job.listeners.remove(progress)

    async def _run(self, job: _Pull, params: api.PullParams, holder: str) -> None:
        from shared.fetch.download import Progress
        from shared.fetch.pull import pull

        post = poster()
        lease = self._slot.leases.begin("pull", holder, self._slot.now(), "downloading", on_engine=False)

        def on_progress(event: Progress) -> None:
            post(self._tell, job, lease, event.stage, event.done, event.total)

        def request() -> api.PullResult:
            return pull(
                params.source,
                self._root,
                progress=on_progress,
                cancelled=lambda: self._ending.is_set() or job.cancelled.is_set(),
                digest=params.digest,
                name=params.name,
            )

        try:
            result = await in_thread(request)
            name = await in_thread(self._library.name_at, result.path)
        except (ModeldError, OSError) as error:
            job.outcome.set_exception(error)
            job.outcome.exception()  # its callers may all have gone
        else:
            job.outcome.set_result(msgspec.structs.replace(result, name=name or result.name))
        finally:
            lease.end()
            self._pulls.pop(_key(params), None)
            if not job.outcome.done():
                job.outcome.cancel()

    def _tell(self, job: _Pull, lease: TurnLease, stage: str, done: int, total: int) -> None:
        lease.stage(stage, self._slot.now(), done=done, total=total)
        job.last = api.JobProgress(done=done, total=total, label=stage)
        for listener in list(job.listeners):
            listener(job.last)

    def cancel(self, source: str) -> list[str]:
        """End the pulls of this source, or all for ""; their sources. Whoever waits for one gets DownloadFailed."""
        ended = [(key[0], job) for key, job in self._pulls.items() if source in ("", key[0])]
        for _, job in ended:
            job.cancelled.set()
        return [shown_address(name) for name, _ in ended]

    async def remove(self, name: str) -> api.RemoveResult:
        """Raises ModelNotFound, ModelInUse, UnsupportedFeature, RootUnusable."""
        from modeld.library.removal import remove_whole

        entry = await self._slot.find(name)
        rows = await in_thread(self._library.rows)
        used = self._in_use()
        result = await in_thread(
            lambda: remove_whole(
                entry, rows, lambda paths: used[1] if used[0].intersection(paths) else None, self._root
            )
        )
        self._library.refresh()
        return result

    def _in_use(self) -> tuple[set[str], tuple[str, str]]:
        """The files behind the slot now, and how they are used."""
        state = self._slot.state
        loading = state.load is not None
        entry = self._slot.loads.entry_in_use()
        files: Sequence[str] = entry.parts if entry is not None else ()
        target = state.active or (state.load.target if state.load is not None else None)
        adapters = target.adapters if target is not None else ()
        current = self._slot.scheduler.current
        holder = current.ticket.client_name if current is not None else "modeld"
        return {*files, *adapters}, ("loading" if loading else state.name.lower(), holder)

    def close(self) -> None:
        """Let running transfers end at their next chunk; what they fetched so far is kept for resuming."""
        self._ending.set()
