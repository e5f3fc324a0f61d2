"""The slot at run time: admits work, grants it in turn, and carries out what the machine decides.

One loop owns everything here: there are no locks, and every decision is the machine's or the queue's.
A caller's own task only waits for the outcome; the work runs in tasks of the slot, so a caller that
vanishes never leaves the slot half way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread

from modeld.memory import policy
from modeld.slot import effects as fx
from modeld.slot import events as ev
from modeld.slot.crew import Crew, StartWorker
from modeld.slot.loads import Loads
from modeld.slot.machine import Machine, due
from modeld.slot.ports import Owner, ReadMemory, Records, Shelf
from modeld.slot.request import active_model, identity_of
from modeld.slot.work import Stopped, Work
from modeld.turn.lease import LeaseTable
from modeld.turn.queue import PRIORITY, Kind, Resident, Ticket, TurnQueue, Uses, fits
from shared.errors import (
    ModelBusy,
    ModeldError,
    ModelLoadFailed,
    ModelNotActive,
    ModelSwitchRequired,
    NotOwner,
    WaitTimeout,
)
from shared.protocol.api import ActiveModel, Event, LoadConfig, OnBusy, TurnResult

if TYPE_CHECKING:
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity
    from shared.clock import Clock
    from shared.settings import Settings

Run = Callable[[Work], Awaitable[Any]]
T = TypeVar("T")


class Client:
    """Who asks: `number` identifies the connection, `name` is for people."""

    __slots__ = ("name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name


class Permission:
    """What a caller allows: to load into an empty slot, to switch, to hurt another client, and how to wait."""

    __slots__ = ("consent", "load", "on_busy", "switch", "wait_s")

    def __init__(
        self,
        *,
        load: bool = False,
        switch: bool = False,
        consent: bool = False,
        on_busy: OnBusy = "wait",
        wait_s: float | None = None,
    ) -> None:
        self.load = load
        self.switch = switch
        self.consent = consent
        self.on_busy = on_busy
        self.wait_s = wait_s


class Slot:
    """The one place for a resident model. `run` must be running; everything else is called on its loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        backend: str,
        shelf: Shelf,
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
        self.shelf = shelf
        self.owner = owner
        self.records = records
        self.log = log
        self.changed = changed
        self.machine = Machine(settings)
        self.queue = TurnQueue(settings)
        self.uses = Uses(settings)
        self.leases = LeaseTable(changed)
        self.crew = Crew(start_worker, settings, self.feed)
        self.loads = Loads(self, read_memory)
        self.crew.refused = self.loads.refused
        self.connected: Callable[[], int] = lambda: 0
        self.is_connected: Callable[[int], bool] = lambda client: True
        self.last_turn: TurnResult | None = None
        self.last_error: dict[str, Any] | None = None
        self.pending_reload = False
        self.pressure = False
        self.frozen = False
        self._tasks: anyio.abc.TaskGroup | None = None
        self._works: dict[int, tuple[Work, Run]] = {}
        self._current: Work | None = None
        self._next_ticket = 0
        self._resident_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = anyio.Event()
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

    async def close(self, drain: float) -> None:
        """Refuse new work, let the running one end for `drain` seconds, cancel it, close the worker."""
        self.frozen = True
        for work, _ in list(self._works.values()):
            if work is not self._current:
                self.queue.remove(work.ticket.number)
                self._finish_stopped(work, NotOwner(owner=None))
        with anyio.move_on_after(drain):
            while self._current is not None:
                await self._changed.wait()
        if self._current is not None:
            self._current.stop("modeld, which is stopping")
            with anyio.move_on_after(self.settings.cancel_limit + 1):
                while self._current is not None:
                    await self._changed.wait()
        self.feed(ev.ShutdownAsked())
        await self._settle()
        self._stopping.set()

    async def lose(self) -> None:
        """The lease is lost: end the turn with a typed error, kill the worker and see it gone."""
        self.feed(ev.OwnerLost())
        for work, _ in list(self._works.values()):
            work.stop("", NotOwner(owner=None))
        await self._settle()

    def renew(self, owner: Owner) -> None:
        """Go on under a new instance, owning nothing."""
        self.owner = owner
        self.frozen = False
        self.feed(ev.OwnerRenewed(floor=self.machine.state.generation))

    def freeze(self) -> None:
        """The lease is in doubt: grant nothing, and let nothing decode."""
        self.frozen = True
        self.crew.pause()

    def thaw(self) -> None:
        """The lease stands."""
        self.frozen = False
        self.crew.resume()
        self.schedule()

    async def until_closed(self) -> None:
        """Until every process that was closing is proven gone."""
        while self.machine.state.closing:
            await self._changed.wait()

    async def _settle(self) -> None:
        """Until every worker is proven gone."""
        while self.machine.state.closing or self.machine.state.worker is not None or self.crew.alive:
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
            self._resident_since = self.now()
        if after.active is None and before.active is not None:
            self.uses.forget()
            self.queue.forget_use()
            self.leases.forget_pins()
            self.pending_reload = False
        for effect in effects:
            self._do(effect)
        if isinstance(event, ev.WorkerGone) and after.name not in ("ShuttingDown", "LostOwner"):
            self.spawn(self.loads.clear_name(event.worker))
        if after is not before:
            if after.error is not None:
                self.last_error = after.error
            self._signal()
            self.schedule()

    def _signal(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _do(self, effect: fx.Effect) -> None:
        match effect:
            case fx.StartWorker():
                self.spawn(self.crew.start(effect.worker))
            case fx.CloseWorker():
                self.spawn(self.crew.close(effect.worker, kill=effect.kill))
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
            case fx.Announce() | fx.DropHandles():
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
        """Who is told when the machine ends the operation of `lease` by force; None: nobody any more."""
        if fail is None:
            self._failing.pop(lease, None)
        else:
            self._failing[lease] = fail

    # --- admission -----------------------------------------------------------------------------

    async def find(self, model: str) -> ModelEntry:
        """The library's entry. Raises ModelNotFound."""
        return await anyio.to_thread.run_sync(self.shelf.find, model)

    async def perform(
        self,
        kind: Kind,
        client: Client,
        entry: ModelEntry | None,
        config: LoadConfig,
        permission: Permission,
        emit: Callable[[Event], None],
        run: Callable[[Work], Awaitable[T]],
        on_work: Callable[[Work], None] = lambda work: None,
    ) -> T:
        """Queue, then `run` with the slot reserved; its result. Raises the typed errors.

        Cancelling the caller stops the work. `on_work` gets it before it waits, to stop it politely.
        """
        wanted = identity_of(entry, config, self.backend) if entry is not None else None
        work = self._admit(kind, client, wanted, entry.name if entry else "", permission, emit)
        self._works[work.ticket.number] = (work, run)
        on_work(work)
        self.schedule()
        try:
            result: T = await work.outcome
        except asyncio.CancelledError:
            self.stop(work)
            raise
        return result

    def _admit(
        self,
        kind: Kind,
        client: Client,
        wanted: RequestedIdentity | None,
        model: str,
        permission: Permission,
        emit: Callable[[Event], None],
    ) -> Work:
        self._next_ticket += 1
        now = self.now()
        wait = self.settings.queue_wait if permission.wait_s is None else permission.wait_s
        ticket = Ticket(
            number=self._next_ticket,
            client=client.number,
            client_name=client.name,
            kind=kind,
            model=model,
            wanted=wanted,
            arrived=now,
            deadline=now + max(wait, 0.0),
            load_seconds=self.loads.seconds.get(model, 0.0),
            front=permission.on_busy == "cancel",
        )
        work = Work(
            ticket, emit, allow_load=permission.load, allow_switch=permission.switch, consent=permission.consent
        )
        error = self._refusal(work)
        if error is not None:
            raise error
        if kind == "fill":
            self._drop_older_fills(client.number)
        if self._current is not None:
            self._make_way(self._current, work, permission)
        self.queue.add(ticket)
        return work

    def _make_way(self, current: Work, work: Work, permission: Permission) -> None:
        """What a newcomer does to the work that has the slot. Raises ModelBusy (on_busy fail)."""
        if PRIORITY[work.ticket.kind] < PRIORITY[current.ticket.kind]:
            current.stop("")
        elif permission.on_busy == "cancel" and current.ticket.client != work.ticket.client:
            self.records.audit(
                "cancelled_by_other",
                work.ticket.client_name,
                {"holder": current.ticket.client_name, "operation": current.ticket.kind, "for": work.ticket.model},
            )
            self.log(f"{work.ticket.client_name} ends the {current.ticket.kind} of {current.ticket.client_name}")
            current.stop(work.ticket.client_name)
        elif permission.on_busy == "cancel":
            current.stop("")
        elif permission.on_busy == "fail" and not self._shares_load(work):
            raise self._busy()

    def _drop_older_fills(self, client: int) -> None:
        """The newest fill of a client is the only one that it still wants."""
        for work, _ in list(self._works.values()):
            if work.ticket.kind == "fill" and work.ticket.client == client:
                self.stop(work)

    def _busy(self) -> ModelBusy:
        current = self._current
        assert current is not None
        return ModelBusy(
            operation=current.ticket.kind,
            holder=current.ticket.client_name,
            since=round(self.now() - current.granted_at, 3),
            queued=len(self.queue),
        )

    def _shares_load(self, work: Work) -> bool:
        """A load of what is being loaded already joins it, whoever began it."""
        load, current = self.machine.state.load, self._current
        if work.ticket.kind != "load" or work.ticket.wanted is None:
            return False
        if load is not None:
            return fits(load.target, work.ticket.wanted)
        # About to be loaded: its file and its memory are still being checked.
        if current is None or current.stage != "preparing" or current.ticket.wanted is None:
            return False
        return fits(current.ticket.wanted, work.ticket.wanted)

    def _refusal(self, work: Work) -> ModeldError | None:
        """Why the work could not be done as things are now, permissions considered."""
        state, ticket = self.machine.state, work.ticket
        if ticket.wanted is None or ticket.kind == "unload":
            return None
        resident = self.resident
        if resident is None:
            return None if work.allow_load else ModelNotActive(requested=ticket.model)
        if fits(resident, ticket.wanted):
            return None
        if not work.allow_switch:
            return ModelSwitchRequired(active=resident.name, requested=ticket.model, in_use_by=[])
        if work.consent or state.active is None:
            return None
        users = self.uses.in_use_by(ticket.client, self.now(), self.queue, state.active)
        if not users:
            return None
        return ModelSwitchRequired(active=state.active.name, requested=ticket.model, in_use_by=users)

    @property
    def resident(self) -> Resident | None:
        """What is resident, or on its way."""
        state = self.machine.state
        return state.active or (state.load.target if state.load is not None else None)

    # --- granting ------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Grant the slot if it can be granted, tell the others their places, and set the one timer."""
        if self._scheduling or self._tasks is None:
            return
        self._scheduling = True
        try:
            self._expire()
            self._join_loads()
            while self._current is None and not self.frozen and self._grant_one():
                pass
            self._tell_places()
            self._arm()
        finally:
            self._scheduling = False

    def _grant_one(self) -> bool:
        state = self.machine.state
        if state.name in ("Busy", "LostOwner", "ShuttingDown"):
            return False
        resident = self.resident
        ticket = self.queue.next(self.now(), resident, self._resident_since)
        if ticket is None:
            return False
        load = state.load
        if load is not None and load.callers and not (ticket.wanted and fits(load.target, ticket.wanted)):
            return False  # somebody waits for that load; the switch comes after it
        work, run = self._works[ticket.number]
        error = self._refusal(work)  # things may have changed while it waited
        if error is not None:
            self.queue.remove(ticket.number)
            self._end(work, error)
            return True
        self.queue.take(ticket)
        self._current = work
        self._serve_soon(work, run)
        return True

    def _serve_soon(self, work: Work, run: Run) -> None:
        work.stage = "preparing"
        work.granted_at = self.now()
        self.spawn(self._serve(work, run))

    async def _serve(self, work: Work, run: Run) -> None:
        try:
            if work.stopped.is_set():
                raise Stopped
            result = await run(work)
        except Stopped:
            self._finish_stopped(work, work.reason)
        except ModeldError as error:
            self._end(work, error)
        except Exception as error:  # the slot outlives a defect of one operation
            self.log(f"defect in {work.ticket.kind}: {type(error).__name__} at {where(error)}")
            self._end(work, error)
        else:
            self._end(work, None, result)
        finally:
            if self._current is work:
                self._current = None
            self._signal()
            self.schedule()

    def _join_loads(self) -> None:
        """Loads of what is being loaded already need no turn of their own."""
        for ticket in self.queue.waiting:
            work, run = self._works[ticket.number]
            if self._current is not None and self._shares_load(work):
                self.queue.take(ticket)
                self._serve_soon(work, run)

    def _expire(self) -> None:
        for ticket in self.queue.expired(self.now()):
            work, _ = self._works[ticket.number]
            waited = round(self.now() - ticket.arrived, 3)
            self._end(work, WaitTimeout(position=1, waited_s=waited))

    def _tell_places(self) -> None:
        if not len(self.queue):
            return
        order = self.queue.order(self.now(), self.resident, self._resident_since)
        ahead = [self._current.ticket.client_name] if self._current is not None else []
        for position, ticket in enumerate(order, start=1):
            self._works[ticket.number][0].place(position, list(ahead))
            ahead.append(ticket.client_name)

    # --- ending --------------------------------------------------------------------------------

    def stop(self, work: Work, by: str = "") -> None:
        """Cancel a piece of work wherever it is."""
        if work.stage == "queued" and self.queue.remove(work.ticket.number):
            work.stop(by)
            self._finish_stopped(work, None)
            self.schedule()
        else:
            work.stop(by)

    def _finish_stopped(self, work: Work, reason: ModeldError | None) -> None:
        self._end(work, reason or work.reason, self.stopped_result(work))

    def stopped_result(self, work: Work) -> TurnResult:
        """What a caller gets whose work never reached the engine."""
        from shared.protocol.api import Timings, Usage

        queued = (work.granted_at or self.now()) - work.ticket.arrived
        return TurnResult(
            finish_reason="cancelled_by_other" if work.by else "cancelled",
            model=work.ticket.model,
            usage=Usage(),
            timings=Timings(queued_s=round(queued, 4), load_s=round(work.load_s, 4)),
            generation=self.machine.state.generation,
            by=work.by,
        )

    def _end(self, work: Work, error: BaseException | None, result: Any = None) -> None:
        self._works.pop(work.ticket.number, None)
        if error is not None:
            work.fail(error)
        else:
            work.succeed(result)
        self.changed()

    def drop_client(self, client: int) -> None:
        """Its connection has closed: its places, holds and running work end."""
        self.queue.drop_client(client)
        for work, _ in list(self._works.values()):
            if work.ticket.client == client:
                work.stop("")
                if work.stage == "queued":
                    self._finish_stopped(work, None)
        self.schedule()

    # --- time ----------------------------------------------------------------------------------

    @property
    def idle_ttl(self) -> float | None:
        """Seconds after which the model is reaped; None while it is wanted."""
        if self._current is not None or len(self.queue) or self.queue.holds(self.now()):
            return None
        connected = self.connected() > 0
        return self.settings.idle_ttl_connected if connected else self.settings.idle_ttl

    def _arm(self) -> None:
        """One timer for everything that only time changes."""
        moments = [
            due(self.machine.state, self.settings, self.idle_ttl),
            self.queue.next_moment(self.now(), self.resident, self._resident_since),
            min((hold.expires for hold in self.queue.holds(self.now())), default=None),
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

    @property
    def current(self) -> Work | None:
        """The work that has the slot."""
        return self._current

    def active(self) -> ActiveModel | None:
        """The resident model as the wire tells it."""
        identity = self.machine.state.active
        if identity is None:
            return None
        return active_model(identity, self.loads.capabilities, self.loads.measured)

    def places(self) -> list[Ticket]:
        """Who waits, in the order they would be served now."""
        return self.queue.order(self.now(), self.resident, self._resident_since)

    def note_pressure(self) -> None:
        """Look at free memory at a turn's border; said in the status, and acted on only by asking the worker to
        drop parked conversations.
        """
        self.pressure = policy.under_pressure(self.loads.read_memory(), self.settings)


def where(error: BaseException) -> str:
    """File and line of a defect: never its text, which may hold a prompt."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "?"
