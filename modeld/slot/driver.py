"""The slot at run time: carries out the machine's effects; the scheduler grants requests.

One loop owns everything here: there are no locks, and every decision is the machine's or the queue's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from modeld.memory import policy
from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core.machine import Machine, due
from modeld.slot.loads import Loads
from modeld.slot.ports import ModelLookup, Owner, ReadMemory, Records
from modeld.slot.request import active_model
from modeld.slot.scheduler import Scheduler
from modeld.slot.worker_supervisor import StartWorker, WorkerSupervisor
from modeld.turn.lease import LeaseTable
from modeld.turn.queue import Resident
from shared.diagnosis.defect import where
from shared.diagnosis.threads import in_thread
from shared.errors import (
    ModeldError,
    ModelLoadFailed,
    NotOwner,
)
from shared.lease.crashpoint import crash_point
from shared.protocol.api import ActiveModel, TurnResult

if TYPE_CHECKING:
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
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.backend = backend
        self.lookup = lookup
        self.owner = owner
        self.records = records
        self.log = log
        self.changed = changed
        self.machine = Machine(settings)
        self.scheduler = Scheduler(self)
        self.leases = LeaseTable(changed)
        self.workers = WorkerSupervisor(start_worker, settings, self.feed)
        self.loads = Loads(self, read_memory)
        self.workers.refused = self.loads.refused
        self.connected: Callable[[], int] = lambda: 0
        self.is_connected: Callable[[int], bool] = lambda client: True
        self.last_turn: TurnResult | None = None
        self.last_error: dict[str, Any] | None = None
        self.pending_reload = False
        self.pressure = False
        self.frozen = False
        self._tasks: anyio.abc.TaskGroup | None = None
        self.resident_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = anyio.Event()
        self._drain: anyio.CancelScope | None = None
        self._scheduling = False
        self._failing: dict[int, Callable[[ModeldError], None]] = {}
        self._changed = anyio.Event()

    # --- life ----------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until `close` has ended everything. Cancelling it kills the worker and waits for its end."""
        async with anyio.create_task_group() as self._tasks:
            try:
                task_status.started()
                await self._stopping.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    self.feed(ev.ShutdownAsked())
                    await self._settle()
                if self._timer is not None:
                    self._timer.cancel()
                self._tasks.cancel_scope.cancel()
        for view in self.leases.views():
            if view.on_engine:
                self.log(f"defect: the lease of a {view.operation} was never given back")

    async def close(self, drain: float) -> None:
        """Refuse new work, let the running one end for `drain` seconds, cancel it, close the worker."""
        self.frozen = True
        self.scheduler.refuse_waiting(lambda: NotOwner(owner=None))
        with anyio.move_on_after(drain) as self._drain:
            while self.scheduler.current is not None:
                await self._changed.wait()
        if (running := self.scheduler.current) is not None:
            running.stop("modeld, which is stopping")
            with anyio.move_on_after(self.settings.cancel_limit + 1):
                while self.scheduler.current is not None:
                    await self._changed.wait()
        self.feed(ev.ShutdownAsked())
        await self._settle()
        self._stopping.set()

    def shorten(self, drain: float) -> None:
        """Of an end that has begun: let what runs go on for `drain` seconds at most, from now."""
        if self._drain is not None:
            self._drain.deadline = min(self._drain.deadline, anyio.current_time() + drain)

    async def until_free(self) -> None:
        """Until nothing runs. What is `frozen` meanwhile gets nothing new."""
        while self.scheduler.current is not None:
            await self._changed.wait()

    async def lose(self) -> None:
        """The lease is lost: end the turn with a typed error, kill the worker and see it gone."""
        self.feed(ev.OwnerLost())
        self.scheduler.stop_all(lambda: NotOwner(owner=None))
        await self._settle()

    def renew(self, owner: Owner) -> None:
        """Go on under a new instance, owning nothing."""
        self.owner = owner
        self.frozen = False
        self.feed(ev.OwnerRenewed(floor=self.machine.state.generation))

    def freeze(self) -> None:
        """The lease is in doubt: grant nothing, and let nothing decode."""
        self.frozen = True
        self.workers.pause()

    def thaw(self) -> None:
        """The lease stands."""
        self.frozen = False
        self.workers.resume()
        self.schedule()

    async def until_closed(self) -> None:
        """Until every process that was closing is proven gone."""
        while self.machine.state.closing:
            await self._changed.wait()

    async def _settle(self) -> None:
        """Until every worker is proven gone."""
        while self.machine.state.closing or self.machine.state.worker is not None or self.workers.alive:
            await self._changed.wait()

    # --- events and effects --------------------------------------------------------------------

    def now(self) -> float:
        """Awake seconds."""
        return self.clock.awake()

    def feed(self, event: ev.Event) -> None:
        """Let something happen to the slot. Raises the machine's typed refusals."""
        before = self.machine.state
        effects = self.machine.feed(event, self.now())
        after = self.machine.state
        if after.active is not None and before.active is None:
            self.resident_since = self.now()
        if after.active is None and before.active is not None:
            self.scheduler.uses.forget()
            self.scheduler.queue.forget_use()
            self.leases.forget_pins()
            self.pending_reload = self.pressure = False
        if after is not before and after.error is not None:
            self.last_error = after.error  # what an effect knows better goes over it
        for effect in effects:
            self._do(effect)
        if isinstance(event, ev.WorkerGone) and after.name not in ("ShuttingDown", "LostOwner"):
            self.spawn(self.loads.clear_name(event.worker))
        if after is not before:
            self.signal()
            self.schedule()

    def signal(self) -> None:
        """Wake whoever waits for a change."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _do(self, effect: fx.Effect) -> None:
        match effect:
            case fx.StartWorker():
                self.spawn(self.workers.start(effect.worker))
            case fx.CloseWorker():
                self.spawn(self.workers.close(effect.worker, kill=effect.kill))
            case fx.CheckMemory():
                self.spawn(self.loads.check_memory(effect.job), job=effect.job)
            case fx.SendLoad():
                self.spawn(self.loads.send(effect.worker, effect.job), job=effect.job)
            case fx.FinishLoad():
                self.loads.finish(effect)
            case fx.FailOperation():
                fail = self._failing.get(effect.lease)
                if fail is not None:
                    from shared.errors import from_wire

                    fail(from_wire(effect.error))
            case fx.SaveGeneration():
                self.records.save_generation(effect.generation)
                crash_point("slot.generation")
            case fx.Announce():
                self.changed()
            case _:
                raise AssertionError(effect)

    def spawn(self, work: Coroutine[Any, Any, None], *, job: int | None = None) -> None:
        """Run in a task of the slot. A defect in it is logged; if it served load `job`, that load fails."""
        assert self._tasks is not None, "the slot does not run"

        async def run() -> None:
            try:
                await work
            except Exception as error:  # one defect must not take the daemon with it
                self.log(f"defect: {type(error).__name__} at {where(error)}")
                if job is not None:
                    reason = error.message if isinstance(error, ModeldError) else type(error).__name__
                    failed = ModelLoadFailed(model="the model", stage="worker", reason=reason)
                    self.feed(ev.LoadRefused(job=job, error=failed.to_wire()))

        self._tasks.start_soon(run)

    def on_failure(self, lease: int, fail: Callable[[ModeldError], None] | None) -> None:
        """Who is informed when the machine ends the operation of `lease` by force; None: nobody any more."""
        if fail is None:
            self._failing.pop(lease, None)
        else:
            self._failing[lease] = fail

    # --- the models --------------------------------------------------------------------------

    async def find(self, model: str) -> ModelEntry:
        """The library's entry, as it may be loaded. Raises ModelNotFound."""
        return await in_thread(lambda: self.loads.projectors.without(self.lookup.find(model)))

    @property
    def resident(self) -> Resident | None:
        """What is resident, or on its way."""
        state = self.machine.state
        return state.active or (state.load.target if state.load is not None else None)

    def schedule(self) -> None:
        """Grant what can be granted, and set the one timer."""
        if self._scheduling or self._tasks is None:
            return
        self._scheduling = True
        try:
            self.scheduler.grant()
            self._arm()
        finally:
            self._scheduling = False

    # --- time ----------------------------------------------------------------------------------

    @property
    def idle_ttl(self) -> float | None:
        """Seconds after which the model is reaped; None while it is wanted.

        An editor keeps it longer, unless the last turn found less than the reserve free.
        """
        if self.scheduler.current is not None or len(self.scheduler.queue) or self.scheduler.queue.holds(self.now()):
            return None
        connected = self.connected() > 0 and not self.pressure
        return self.settings.idle_ttl_connected if connected else self.settings.idle_ttl

    def _arm(self) -> None:
        """One timer for everything that only time changes."""
        moments = [
            due(self.machine.state, self.settings, self.idle_ttl),
            self.scheduler.queue.next_moment(self.now(), self.resident, self.resident_since),
            min((hold.expires for hold in self.scheduler.queue.holds(self.now())), default=None),
        ]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moment = min((one for one in moments if one is not None), default=None)
        if moment is not None:
            delay = max(moment - self.now(), 0.0) + 0.001
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        before = self.machine.state
        if not self.frozen:
            self.feed(ev.Ticked(idle_ttl=self.idle_ttl))
        if before.name == "Ready" and self.machine.state.name == "Unloading":
            self.log(f"unloaded {before.active.name if before.active else ''}: idle")
        self.schedule()

    # --- views ---------------------------------------------------------------------------------

    def active(self) -> ActiveModel | None:
        """The resident model as the wire tells it."""
        identity = self.machine.state.active
        if identity is None:
            return None
        return active_model(identity, self.loads.capabilities, self.loads.measured)

    def note_pressure(self) -> None:
        """Look at free memory at a turn's border; said in the status, and acted on only by asking the worker to
        drop parked conversations.
        """
        self.pressure = policy.under_pressure(self.loads.read_memory(), self.settings)
