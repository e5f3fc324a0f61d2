"""Supervises worker processes by number: starts them, sends the load, watches them and proves their end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel

from modeld.host.processor_time import processor_seconds
from modeld.slot.core import events as ev
from shared.errors import EngineFailed, ModeldError, ModelLoadFailed
from shared.lease.crashpoint import crash_point
from shared.protocol.api import Accelerator

if TYPE_CHECKING:
    from modeld.host.worker_host import WorkerHost
    from modeld.pipe.messages import Load, Loaded
    from shared.catalog.identity import RequestedIdentity
    from shared.settings import Settings

T = TypeVar("T")
StartWorker = Callable[[], Awaitable["WorkerHost"]]
#: How long a worker that was asked to close may take before it is killed. Its memory is wanted.
CLOSE_SECONDS = 2.0
#: The same where it first writes warm conversations to disk.
KEEPING_SECONDS = 10.0
#: A load without a sign is looked at so many times within its limit. It computes when it had this part of one
#: processor: one of low priority beside dozens gets more. And it ends, computing or not, after so many limits.
LOOKS, COMPUTES, MOST_STALLS = 6, 0.005, 10


class WorkerSupervisor:
    """Hosts in force. `report` gets each worker's WorkerUp and, exactly once, its WorkerGone; `refused` why one did
    not come up, where the reason has a type of its own.
    """

    def __init__(
        self,
        start: StartWorker,
        settings: Settings,
        report: Callable[[ev.Event], None],
        refused: Callable[[int, ModeldError], None],
    ) -> None:
        self._start = start
        self._settings = settings
        self._report = report
        self._hosts: dict[int, WorkerHost] = {}
        self._wanted: set[int] = set()
        self._reported: set[int] = set()
        self.crashed: set[int] = set()
        self._closing: set[int] = set()
        self._starting: dict[int, anyio.CancelScope] = {}
        self._refused = refused

    def host(self, worker: int | None) -> WorkerHost | None:
        """The process of that number, None before it is up and after it is gone."""
        return self._hosts.get(worker) if worker is not None else None

    @property
    def alive(self) -> int:
        """How many processes are not proven gone."""
        return len(self._hosts)

    async def start(self, worker: int) -> None:
        """Spawn, wait for the import, then watch until the end."""
        self._wanted.add(worker)
        host = await self._came_up(worker)
        if host is None:
            return
        self._hosts[worker] = host
        crash_point("load.spawned")
        if worker in self._closing:  # closed just when it was up
            await self._end(worker, host, kill=True)
            return
        try:
            await self.imported(host)
        except ModeldError as error:
            if worker not in self._closing:
                self._refused(worker, error)
        else:
            self._report(ev.WorkerUp(worker=worker))
        await host.exited.wait()
        if worker not in self._closing:
            self._gone(worker, host.exit_reason)

    async def _came_up(self, worker: int) -> WorkerHost | None:
        """None when it did not, or was closed meanwhile, or the slot itself is cancelled: gone then, and reported."""
        host: WorkerHost | None = None
        reason = "closed while it came up"
        scope = self._starting[worker] = anyio.CancelScope()
        try:
            with scope:
                host = await self._start()
        except ModeldError as error:
            reason = error.message
            if worker not in self._closing:
                self._refused(worker, error)
        finally:
            del self._starting[worker]
            if host is None:
                self._gone(worker, reason)
        return host

    async def imported(self, host: WorkerHost) -> None:
        """An import is a part of the load, and shows no progress: a driver that hangs in it must not hang the slot."""
        await self._in_time(host.imported(), "its library was not imported")

    async def devices(self, host: WorkerHost, target: RequestedIdentity) -> tuple[Accelerator, ...]:
        """The discrete accelerators that a load would use: a part of the load, which asks drivers too.

        Raises EngineFailed, and ModelLoadFailed where they are not reported.
        """
        return await self._in_time(host.devices(target), "its devices were not reported", model=target.name)

    async def _in_time(self, step: Awaitable[T], missed: str, *, model: str = "") -> T:
        """One step of a load that shows no progress."""
        limit = self._settings.load_stall
        with anyio.move_on_after(limit):
            return await step
        raise ModelLoadFailed(model=model, stage="worker", reason=f"{missed} within {limit:.0f} s")

    async def close(self, worker: int, *, kill: bool) -> None:
        """End it and prove it gone, also one that is still coming up."""
        self._closing.add(worker)
        host = self._hosts.get(worker)
        if host is not None:
            await self._end(worker, host, kill=kill)
        elif worker in self._starting:
            self._starting[worker].cancel()
        elif worker in self._reported or worker not in self._wanted:
            self._gone(worker, "never started")

    async def _end(self, worker: int, host: WorkerHost, *, kill: bool) -> None:
        with anyio.CancelScope(shield=True):
            crash_point("unload.closing")
            if not kill:
                resume(host)
            while not host.exited.is_set():
                try:
                    await host.close(0 if kill else self._close_seconds())
                except EngineFailed:
                    # A process stuck in a driver: nothing may be loaded beside it, so keep at it.
                    await anyio.sleep(CLOSE_SECONDS)
            crash_point("unload.closed")
        self._gone(worker, host.exit_reason)

    def _close_seconds(self) -> float:
        return KEEPING_SECONDS if self._settings.parked_disk_bytes > 0 else CLOSE_SECONDS

    def note_exit(self, worker: int) -> None:
        """Somebody saw the process end: tell it now, before anything else is concluded from it."""
        host = self._hosts.get(worker)
        if host is not None and host.exited.is_set():
            self._gone(worker, host.exit_reason)

    def _gone(self, worker: int, reason: str) -> None:
        host = self._hosts.pop(worker, None)
        if host is not None and host.crashed:
            self.crashed.add(worker)
        if worker not in self._reported:
            self._reported.add(worker)
            by_template = host is not None and host.by_template
            self._report(ev.WorkerGone(worker=worker, reason=reason, by_template=by_template))

    async def load(self, worker: int, message: Load, progress: Callable[[float], None]) -> Loaded:
        """Load, bounded by lack of progress. Raises ModelLoadFailed and the engine's own errors.

        A step that shows no fraction is progress as long as the worker computes: on a busy machine one may take
        minutes. It is bounded too, at so many times the limit.
        """
        host = self._hosts.get(worker)
        if host is None:
            raise ModelLoadFailed(model=message.identity.name, stage="worker", reason="the worker process has ended")
        limit = self._settings.load_stall
        computed, told = processor_seconds(host.pid), anyio.current_time()
        with anyio.CancelScope(deadline=told + limit) as scope:

            def moved(fraction: float) -> None:
                nonlocal told
                told = anyio.current_time()
                scope.deadline = told + limit
                progress(fraction)

            async def look() -> None:
                nonlocal computed
                while True:
                    await anyio.sleep(limit / LOOKS)
                    before, computed = computed, processor_seconds(host.pid)
                    if computed - before >= COMPUTES * limit / LOOKS:
                        scope.deadline = min(anyio.current_time() + limit, told + MOST_STALLS * limit)

            looking = asyncio.ensure_future(look())
            try:
                return await host.load(message, moved)
            finally:
                looking.cancel()
        reason = f"no progress for {limit:.0f} s"
        raise ModelLoadFailed(model=message.identity.name, stage="weights", reason=reason)

    def pause(self) -> None:
        """The lease is frozen: nobody decodes until it thaws. Windows has no such signal; the watchdog stands."""
        for host in self._hosts.values():
            _signal(host, "SIGSTOP")

    def resume(self) -> None:
        """The lease has thawed."""
        for host in self._hosts.values():
            host.heartbeat()  # first: a watchdog that wakes must find it
            resume(host)


def resume(host: WorkerHost) -> None:
    """Let a paused worker run: one that is stopped cannot answer a polite close."""
    _signal(host, "SIGCONT")


def _signal(host: WorkerHost, name: str) -> None:
    if sys.platform == "win32" or host.exited.is_set() or not host.pid:
        return
    try:
        os.kill(host.pid, getattr(signal, name))
    except ProcessLookupError:
        return  # its end is on its way to us
