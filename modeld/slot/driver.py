"""The slot: its parts put together, and what the rest of the daemon does with them.

One loop owns the state (`loop.py`); the scheduler grants requests, the loads carry out loading, the operations run on
the resident model, the supervisor keeps the worker processes. Each part gets in its constructor just what it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.loading.loads import Loads
from modeld.slot.loop import Notes, SlotLoop
from modeld.slot.operations import Operations
from modeld.slot.ports import ModelLookup, Owner, ReadMemory, Records
from modeld.slot.scheduler import Scheduler
from modeld.slot.worker_supervisor import StartWorker, WorkerSupervisor
from modeld.turn.lease import LeaseTable
from shared.diagnosis.threads import in_thread
from shared.errors import ModeldError, NotOwner, from_wire
from shared.lease.crashpoint import crash_point

if TYPE_CHECKING:
    from modeld.host.worker_host import WorkerHost
    from modeld.slot.core.state import SlotState
    from modeld.slot.steps import HeldTurn
    from shared.catalog.entry import ModelEntry
    from shared.clock import Clock
    from shared.settings import Settings


class Slot:
    """The one place for a resident model. `run` must be running; everything else is called on its loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        backend: str,
        lookup: ModelLookup,
        owner: Owner,
        records: Records,
        start_worker: StartWorker,
        read_memory: ReadMemory,
        changed: Callable[[], None] = lambda: None,
        connected: Callable[[], int] = lambda: 0,
        is_connected: Callable[[int], bool] = lambda client: True,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings = settings
        self._lookup = lookup
        self._records = records
        self._changed = changed
        self._connected = connected
        self.notes = Notes()
        self.leases = LeaseTable(changed)
        self._loop = loop = SlotLoop(settings, clock, self, self.notes, log)
        self._workers = WorkerSupervisor(start_worker, settings, self._worker_event, self._worker_refused)
        self.loads = Loads(
            loop,
            settings,
            backend=backend,
            owner=owner,
            lookup=lookup,
            records=records,
            leases=self.leases,
            workers=self._workers,
            read_memory=read_memory,
            notes=self.notes,
        )
        self.scheduler = Scheduler(
            loop,
            settings,
            backend=backend,
            audit=records.audit,
            load_seconds=self.loads.seconds,
            changed=changed,
            is_connected=is_connected,
        )
        self.operations = Operations(
            loop,
            settings,
            confirm=owner.confirm,
            records=records,
            leases=self.leases,
            workers=self._workers,
            usage=self.scheduler,
            loads=self.loads,
            notes=self.notes,
        )
        self._stopping = anyio.Event()
        self._drain: anyio.CancelScope | None = None

    # --- life ----------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until `close` has ended everything. Cancelling it kills the worker and waits for its end."""
        async with anyio.create_task_group() as tasks:
            self._loop.start(tasks)
            try:
                task_status.started()
                await self._stopping.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    self.feed(ev.ShutdownAsked())
                    await self._settle()
                self._loop.stop()
        for view in self.leases.views():
            if view.on_engine:
                self._loop.log(f"defect: the lease of a {view.operation} was never given back")

    async def close(self, drain: float) -> None:
        """Refuse new work, let the running one end for `drain` seconds, cancel it, close the worker."""
        self._loop.frozen = True
        self.scheduler.refuse_waiting(lambda: NotOwner(owner=None))
        with anyio.move_on_after(drain) as self._drain:
            await self.until_free()
        if (running := self.scheduler.current) is not None:
            running.stop("modeld, which is stopping")
            with anyio.move_on_after(self._settings.cancel_limit + 1):
                await self.until_free()
        self.feed(ev.ShutdownAsked())
        await self._settle()
        self._stopping.set()

    def shorten(self, drain: float) -> None:
        """Of an end that has begun: let what runs go on for `drain` seconds at most, from now."""
        if self._drain is not None:
            self._drain.deadline = min(self._drain.deadline, anyio.current_time() + drain)

    async def until_free(self) -> None:
        """Until nothing runs. What is held back meanwhile gets nothing new."""
        await self._loop.until(lambda: self.scheduler.current is None)

    def hold_back(self) -> None:
        """Grant nothing more; what runs goes on."""
        self._loop.frozen = True

    async def lose(self) -> None:
        """The lease is lost: end the turn with a typed error, kill the worker and see it gone."""
        self.feed(ev.OwnerLost())
        self.scheduler.stop_all(lambda: NotOwner(owner=None))
        await self._settle()

    def renew(self) -> None:
        """Go on under a new instance, owning nothing."""
        self._loop.frozen = False
        self.feed(ev.OwnerRenewed(floor=self.state.generation))

    def freeze(self) -> None:
        """The lease is in doubt: grant nothing, and let nothing decode."""
        self._loop.frozen = True
        self._workers.pause()

    def thaw(self) -> None:
        """The lease stands."""
        self._loop.frozen = False
        self._workers.resume()
        self._loop.wake()

    async def _settle(self) -> None:
        """Until every worker is proven gone."""
        await self._loop.until(lambda: not self.state.closing and self.state.worker is None and not self._workers.alive)

    # --- for the methods -----------------------------------------------------------------------

    @property
    def state(self) -> SlotState:
        """What the machine knows now."""
        return self._loop.state

    def now(self) -> float:
        """Awake seconds."""
        return self._loop.now()

    def feed(self, event: ev.Event) -> None:
        """Let something happen to the slot. Raises the machine's typed refusals."""
        self._loop.feed(event)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in a task of the slot. A defect in it is logged."""
        self._loop.spawn(work)

    async def find(self, model: str) -> ModelEntry:
        """The library's entry, as it may be loaded. Raises ModelNotFound."""
        return await in_thread(lambda: self.loads.projectors.without(self._lookup.find(model)))

    def held_turn(self, handle: str, generation: int) -> HeldTurn:
        """A turn whose steps its client asks for one by one, for one session; not begun yet."""
        from modeld.slot.steps import HeldTurn

        return HeldTurn(self._loop, self._settings, self.scheduler, self.operations, self._records, handle, generation)

    def worker(self) -> WorkerHost | None:
        """The process that has or gets the model, where it is up."""
        return self._workers.host(self.state.worker)

    def worker_with(self, entry: ModelEntry) -> WorkerHost | None:
        """The worker that has this very model in memory."""
        active = self.state.active
        if active is None or active.digest != entry.digest or active.path not in (entry.path, *entry.copies):
            return None
        return self.worker()

    def reconfigured(self, *, pending_reload: bool) -> None:
        """What is kept for the resident model has changed; whether it needs a reload to count."""
        self.notes.pending_reload = pending_reload
        self._changed()

    # --- modeld.slot.loop.Reactions ------------------------------------------------------------

    def carry_out(self, effect: fx.Effect) -> None:
        """Do what the machine decided."""
        match effect:
            case fx.StartWorker():
                self._loop.spawn(self._workers.start(effect.worker))
            case fx.CloseWorker():
                self._loop.spawn(self._workers.close(effect.worker, kill=effect.kill))
            case fx.CheckMemory():
                self._loop.spawn(self.loads.check_memory(effect.job), job=effect.job)
            case fx.SendLoad():
                self._loop.spawn(self.loads.send(effect.worker, effect.job), job=effect.job)
            case fx.FinishLoad():
                self.loads.finish(effect)
            case fx.FailOperation():
                self.operations.fail(effect.lease, from_wire(effect.error))
            case fx.SaveGeneration():
                self._records.save_generation(effect.generation)
                crash_point("slot.generation")
            case fx.Announce():
                self._changed()
            case _:
                raise AssertionError(effect)

    def emptied(self) -> None:
        """The resident model has gone: who used it counts no more."""
        self.scheduler.forget_use()
        self.leases.forget_pins()
        self.notes.forget_model()

    def grant(self) -> None:
        """Grant what can be granted now."""
        self.scheduler.grant()

    def idle_ttl(self) -> float | None:
        """Seconds after which an idle model is unloaded; None while it is wanted.

        An editor keeps it longer, unless the last turn found less than the reserve free.
        """
        if self.scheduler.wanted():
            return None
        connected = self._connected() > 0 and not self.notes.pressure
        return self._settings.idle_ttl_connected if connected else self._settings.idle_ttl

    def next_moment(self) -> float | None:
        """When time alone changes what can be granted, in awake seconds."""
        return self.scheduler.next_moment()

    def _worker_refused(self, worker: int, error: ModeldError) -> None:
        self.loads.refused(worker, error)

    def _worker_event(self, event: ev.Event) -> None:
        self.feed(event)
        if isinstance(event, ev.WorkerGone) and self.state.name not in ("ShuttingDown", "LostOwner"):
            self._loop.spawn(self.loads.clear_name(event.worker))
