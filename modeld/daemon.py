"""The daemon: wires its parts, lives as one instance after another, and ends in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from modeld import signals
from modeld.instance import Hold, Instance, another
from modeld.library.inventory import keep_checksums, listed
from modeld.library.jobs import Jobs
from modeld.limit import Limit
from modeld.log.logfile import LogFile, rotated
from modeld.memory.probe import host_memory
from modeld.owner.ownership import winner_of
from modeld.rpc.handles import Handles
from modeld.rpc.server import Server
from modeld.service.notify import notify
from modeld.slot.core import events as ev
from modeld.slot.driver import Slot
from modeld.store.slot_records import StoreRecords
from modeld.store.store import Store
from modeld.succession import STOPS, Succession
from shared.catalog.library import Library
from shared.clock import Clock, SystemClock
from shared.endpoint.faults import EndpointError
from shared.errors import DeviceBusy, ModeldError, NotOwner
from shared.lease.reader import survey
from shared.protocol import api
from shared.version import __version__

if TYPE_CHECKING:
    from modeld.host.worker_host import WorkerHost
    from modeld.owner.ownership import OwnershipEvent
    from shared.paths import DataRoot
    from shared.settings import Settings

#: How often an instance looks whether its socket and records still stand, besides each lease renewal. Seconds.
REPAIR_SECONDS = 10.0
#: How long answers may take to go out before the connections are closed at the end.
GOODBYE_SECONDS = 1.0
#: Beyond the drain: cancel, the worker's end, goodbye, release. What takes longer hangs in a look at a disk. Seconds.
ENDING_SECONDS = 12.0
#: A listing looks at the folders again when the last look is older. Seconds.
REFRESH_SECONDS = 10.0


class Daemon:
    """One modeld process. `run` is its life; `end` ends it; everything else serves the methods."""

    def __init__(
        self,
        root: DataRoot,
        settings: Settings,
        backend: str,
        *,
        clock: Clock | None = None,
        log: LogFile | None = None,
        talks: bool = False,
    ) -> None:
        self._talks = talks
        self.root = root
        self.settings = settings
        self.backend = backend
        self.version = __version__
        self.clock = clock if clock is not None else SystemClock()
        self.log = log if log is not None else LogFile(root.logs)
        self._started = self.clock.awake()
        self.abandoned_turns = 0
        self.hint_model: str | None = None
        self.store = Store(root, self.clock)
        self.records = StoreRecords(self.store, self.log)
        self.library = Library(root, settings)
        self.server = Server(self)
        self.handles = Handles(self)
        self._hold = Hold(lambda: self.live)
        self.slot = Slot(
            settings,
            self.clock,
            backend=backend,
            lookup=self.library,
            owner=self._hold,
            records=self.records,
            start_worker=self._start_worker,
            read_memory=host_memory,
            changed=self.server.changed,
            connected=lambda: self.server.editors,
            is_connected=self.server.has,
            log=self.log,
        )
        from modeld.slot.counting import Counter

        self.counter = Counter(settings, backend, self.slot.worker_with, self._start_helper, self._spawn)
        self.jobs = Jobs(root, self.library, self.slot, self._spawn)
        self._live: Instance | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ending: tuple[str, float] | None = None
        self._wake = anyio.Event()
        self._lost = False
        self._limit = Limit()
        self._refreshed = -1e9
        self.succession = Succession(self)

    # --- life ----------------------------------------------------------------------------------

    async def run(self, ready: anyio.Event | None = None) -> str:
        """Serve until asked to end; the reason (`stop`, `restart`, `upgrade`, `shutdown`).

        `ready` is set once the first instance can be found. Raises RootError, EndpointError.
        """
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                signals.watch(self.end, self._bound_end)
                await tasks.start(self.slot.run)
                tasks.start_soon(self.records.run)
                tasks.start_soon(keep_checksums, self.library, self._has_work)
                await self._live_once(self._instance(), ready)
                while (live := await self._successor()) is not None:
                    await self._live_once(live, ready)
                self.jobs.close()
                await self.counter.close()
                self.library.close()
                tasks.cancel_scope.cancel()
        finally:
            self._limit.cancel()
        reason = self.ends_for
        if not self.succession.again:  # else a signal is for the process that this one becomes
            signals.ignore()
        self.log(f"ended: {reason}")
        self.log.close()
        return reason

    def _instance(self) -> Instance:
        return Instance(self.root, self.settings, self.backend, self.store, self.clock, self.log)

    async def _successor(self) -> Instance | None:
        """The next instance of this process, None when it ends. Raises RootError, EndpointError, OSError."""
        return await another(self._instance, lambda: self._ending is None, self._woken, self.log)

    async def _live_once(self, live: Instance, ready: anyio.Event | None) -> None:
        """One instance from its socket to its end."""
        self._live = live
        self._lost = False
        live.ownership.subscribe(self._on_ownership)
        live.devices.on_event(self._device_in_doubt, self._device_lost)
        async with anyio.create_task_group() as own:
            await own.start(live.ownership.run)
            own.start_soon(live.listener.serve, self.server.serve)
            first = ready is not None and not ready.is_set()
            try:
                live.publish()
            except OSError as error:
                if first:
                    raise  # one that cannot be found is not started; a later one is put there at the next look
                self.log(f"the record could not be written: {error}")
            notify("READY=1")
            self.log(f"instance {live.id} serves {self.backend} at {live.endpoint}")
            if first and ready is not None:
                ready.set()
                if self._talks:
                    self._say_what(live)
            own.start_soon(live.listener.sweep, self.clock.wall())
            own.start_soon(self._keep_repaired, live)
            await self._until_over()
            if self._lost:
                await self._after_loss(live)
            else:
                await self._close(live)
            own.cancel_scope.cancel()

    def _has_work(self) -> bool:
        """Whether anything should come before work that can wait. Called from threads."""
        slot = self.slot
        return self._ending is not None or slot.scheduler.current is not None or slot.state.name != "Empty"

    @property
    def ending(self) -> bool:
        """Whether its end has begun."""
        return self._ending is not None

    @property
    def ends_for(self) -> str:
        """Why it is ending, or will between two turns; "" while it goes on. For those who come meanwhile."""
        return self._ending[0] if self._ending is not None else self.succession.wanted

    async def _until_over(self) -> None:
        while self._ending is None and not self._lost:
            await self._woken()

    async def _after_loss(self, live: Instance) -> None:
        """The worker is killed and seen gone; then this process goes on as another instance."""
        why = live.ownership.why_lost
        self.log(f"the lease is lost ({why}): the model is unloaded, a new instance follows")
        await self.slot.lose()
        self.slot.notes.last_error = NotOwner(f"this modeld gave up its model: {why}", owner=None).to_wire()
        await self._say_goodbye()
        await live.leave("lost")
        self.slot.renew()

    async def _close(self, live: Instance) -> None:
        assert self._ending is not None
        reason, drain = self._ending
        self.server.changed()
        self.log(f"ending: {reason}")
        if not self.succession.again:
            notify("STOPPING=1")
        await self.slot.close(drain)
        await self.records.flush()
        await self._say_goodbye()
        await live.leave(self._ending[0])

    async def _say_goodbye(self) -> None:
        """Close the connections, once whoever waits has been answered: nobody learns of an end by the end of a file."""
        with anyio.move_on_after(GOODBYE_SECONDS):
            await self.server.answered()
        self.server.close()
        with anyio.move_on_after(GOODBYE_SECONDS):
            await self.server.all_gone()

    def _say_what(self, live: Instance) -> None:
        """One line for whoever started it in a terminal."""
        others = [one for one in survey(self.root).living if one.instance != live.id]
        beside = f"; another modeld (pid {others[0].pid}) lives: this one is a standby" if others else ""
        print(f"modeld {self.version} serves {self.backend} at {live.endpoint}{beside}", flush=True)  # noqa: T201

    def end(self, reason: str, drain: float | None = None) -> None:
        """Begin to end. A second call shortens the drain, and its reason counts where it asks for something else."""
        limit = self.settings.shutdown_drain if drain is None else drain
        if self._ending is not None:
            limit = min(0.0 if drain is None else drain, self._ending[1])
            self.slot.shorten(limit)
            if (reason in STOPS) == (self._ending[0] in STOPS):
                reason = self._ending[0]
        self.succession.asked_to(reason)
        self._ending = (reason, limit)
        self._limit.set(limit + ENDING_SECONDS)
        self._wake_up()

    def _bound_end(self) -> None:
        """From any thread: this process ends, whatever its loop hangs in."""
        self._limit.set(self.settings.shutdown_drain + ENDING_SECONDS)

    async def _woken(self) -> None:
        await self._wake.wait()

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    async def _keep_repaired(self, live: Instance) -> None:
        while True:
            await anyio.sleep(REPAIR_SECONDS)
            self.succession.look()
            await self._repair(live)

    async def _repair(self, live: Instance) -> None:
        try:
            await live.repair(self.log)
        except (OSError, ModeldError, EndpointError) as error:
            self.log(f"the endpoint could not be put back: {error}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.slot.spawn(work)

    async def _start_worker(self) -> WorkerHost:
        """A worker for the slot: it hears us only while we may own what it holds."""
        host = await self._start_helper()
        host.may_beat = self.live.may_act
        return host

    async def _start_helper(self) -> WorkerHost:
        """A process that holds no weights, which any instance may have."""
        from modeld.host.worker_host import WorkerHost

        return await WorkerHost.start(self.backend, self.settings, rotated(self.root.logs / "worker.log"))

    # --- ownership -------------------------------------------------------------------------------

    def _on_ownership(self, event: OwnershipEvent) -> None:
        if event == "acquired":
            recovered = self.store.recovered
            if recovered is not None:
                self.abandoned_turns = recovered.abandoned
                self.hint_model = recovered.hint_model
                self.slot.feed(ev.GenerationFloor(floor=recovered.generation))
                if recovered.notice:
                    self.log(recovered.notice)
            self.log("this instance owns the hardware")
        elif event == "freeze":
            self.log("the lease is in doubt: paused")
            self.slot.freeze()
        elif event == "thaw" and self.live.may_act():
            self.slot.thaw()
        elif event == "lost":
            self._lost = True
            self._wake_up()
        elif event == "renewed" and self._live is not None and not self._live.listener.intact():
            self._spawn(self._repair(self._live))
        if event != "renewed":
            self.server.changed()

    @property
    def live(self) -> Instance:
        """The instance in force."""
        assert self._live is not None, "the daemon does not run"
        return self._live

    def _device_in_doubt(self, doubtful: bool) -> None:
        if doubtful:
            self.log("the device is in doubt: paused")
            self.slot.freeze()
        elif self.live.may_act():
            self.slot.thaw()

    def _device_lost(self, error: DeviceBusy) -> None:
        self.log("the device is lost: the model is unloaded")
        self.slot.feed(ev.DeviceLost(error=error.to_wire()))
        if self.live.ownership.valid():
            self.slot.thaw()

    # --- for the methods -----------------------------------------------------------------------

    @property
    def instance(self) -> str:
        """The fence of every call."""
        return self.live.id

    @property
    def token(self) -> str:
        """The secret of the handshake."""
        return self.live.token

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return self.live.endpoint

    @property
    def role(self) -> api.Role:
        """`owner`, `standby` or `idle`."""
        return self.live.ownership.role

    @property
    def uptime(self) -> float:
        """Awake seconds since its start."""
        return self.clock.awake() - self._started

    async def own(self) -> None:
        """Before a resident operation. Raises NotOwner, RootError."""
        self.succession.look()
        if self._ending is not None:
            raise NotOwner(owner=None)
        await self._hold.ensure()

    def require_not_standby(self) -> None:
        """For operations on what is resident: beside a living owner they are its business. Raises NotOwner."""
        if self.role == "standby":
            look = self.live.ownership.last_look
            raise NotOwner(owner=winner_of(look.record if look is not None else None))

    def status(self) -> api.Status:
        """See modeld.status."""
        from modeld.status import build

        return build(self)

    async def inventory(self, *, live_only: bool) -> api.LibraryResult:
        """The library's rows with the live state; `live_only`: those that this daemon can serve."""
        if self.clock.awake() - self._refreshed > REFRESH_SECONDS:
            self._refreshed = self.clock.awake()
            self.library.refresh()
        rejected = self.slot.loads.rejections.reasons()
        back = self.slot.loads.given_back()
        return await listed(self.library, self.settings, self.status(), back, rejected, live_only=live_only)


def reexecute(arguments: list[str]) -> None:
    """Become a fresh process with the same pid: what was imported from an older version is gone."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", "modeld", *arguments])  # noqa: S606  our own interpreter
