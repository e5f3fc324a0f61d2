"""One protected operation on the resident model: from its lease to the end that gives the slot back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import anyio

from modeld.host.processor_time import processor_seconds
from modeld.memory import policy
from modeld.pipe.messages import SPARE, Done, Job, TrimParked
from modeld.slot.core import events as ev
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from modeld.template.message_parts import holds_images
from modeld.turn.reaper import EngineTruth, Reaper
from modeld.turn.stillness import Standing, Stillness
from shared.errors import EngineFailed, ModeldError
from shared.lease.crashpoint import crash_point
from shared.lease.process import identity
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.host.worker_host import WorkerHost
    from modeld.slot.loading.loads import Loads
    from modeld.slot.loop import Loop, Notes
    from modeld.slot.ports import Records
    from modeld.slot.worker_supervisor import WorkerSupervisor
    from modeld.turn.lease import LeaseTable, TurnLease
    from shared.settings import Settings

Kind = Literal["turn", "embed", "warm", "fill"]
#: Lets the worker do one piece of work under the operation's lease.
OnWorker = Callable[[Callable[[int], Job]], Awaitable[Done]]
#: A worker that a signal stopped may be let go on by the one who stopped it; it is ended when so many looks find it so.
STOPPED_LOOKS = 3
#: A stop waits for so many of the longest steps of a prefill, and never longer than so many of its usual limit.
STEPS_TO_STOP, MOST_STOPS = 3, 10
#: A worker computes when it had this part of one processor: one of low priority beside dozens has more.
COMPUTES = 0.005


class Usage(Protocol):
    """Who counts which client uses the resident model."""

    def turn_began(self, client: int, name: str) -> None:
        """Note that a turn of that client runs."""
        ...

    def turn_ended(self, client: int) -> None:
        """Note that the turn of that client has ended."""
        ...


class Resources(NamedTuple):
    """What an operation works with. `confirm` sees that nobody else owns; `failing` ends an operation by its lease."""

    loop: Loop
    settings: Settings
    confirm: Callable[[], Awaitable[object]]
    records: Records
    leases: LeaseTable
    workers: WorkerSupervisor
    usage: Usage
    loads: Loads
    notes: Notes
    failing: dict[int, Callable[[ModeldError], None]]


class Operation:
    """One protected operation on the resident model. `run` or `hold` once."""

    def __init__(self, resources: Resources, request: ScheduledRequest, kind: Kind) -> None:
        self._parts = resources
        self._request = request
        self._kind = kind
        self.lease: TurnLease | None = None
        self.killed: ModeldError | None = None
        self.on_killed: Callable[[], None] = lambda: None
        self.generation = 0
        self.num_ctx = 0
        self.session_valid = True
        self._had_images = False
        #: When the worker was last heard of, and the longest that a step of its prefill took, in seconds.
        self._stepped = 0.0
        self._longest_step = 0.0
        self._prefilling = False

    async def run(self, make: Callable[[int], Job]) -> Done:
        """Take the slot, let the worker do it, give the slot back on every path. Raises as `hold`."""
        return await self.hold(lambda on_worker: on_worker(make))

    async def hold(self, body: Callable[[OnWorker], Awaitable[Done]]) -> Done:
        """Take the slot for as long as `body` takes; what it answers tells in what state the engine is.

        Raises Stopped, EngineFailed, and what the engine raises.
        """
        parts, request = self._parts, self._request
        await parts.confirm()
        crash_point("turn.confirmed")
        if request.stopped.is_set():
            raise Stopped
        lease = self.lease = parts.leases.begin(self._kind, request.ticket.client_name, parts.loop.now(), "prefix")
        parts.failing[lease.number] = self._fail
        try:
            return await self._run(lease, body)
        finally:
            parts.failing.pop(lease.number, None)
            lease.end()

    async def _run(self, lease: TurnLease, body: Callable[[OnWorker], Awaitable[Done]]) -> Done:
        parts, request = self._parts, self._request
        worker = parts.loop.state.worker
        host = parts.workers.host(worker)
        if host is None or worker is None:
            raise EngineFailed(reason="the worker process has ended", generation=parts.loop.state.generation)
        client = request.ticket.client_name
        parts.loop.feed(ev.OperationStarted(lease=lease.number, operation=self._kind, holder=client))
        crash_point("turn.started")
        state = parts.loop.state
        self.generation = state.generation
        self.num_ctx = state.active.num_ctx if state.active is not None else 0
        if self._kind == "turn":
            parts.usage.turn_began(request.ticket.client, client)
        valid = False
        try:
            done = await body(lambda make: self._on_worker(lease, host, make))
            valid = done.state_valid
            parts.loads.note_measured(done)
            if self._kind == "turn" and valid:
                await self._relieve(lease, host)
            return done
        except ModeldError as error:
            parts.workers.note_exit(worker)  # a crash is reported as a crash, before the slot is given back
            valid = bool(getattr(error, "state_valid", False)) and not host.exited.is_set()
            if self._had_images and host.crashed and state.active is not None and state.active.projector:
                left_out = parts.loads.projectors.note(state.active.path, state.active.projector, host.exit_reason)
                reason = f"{host.exit_reason} over an image; {left_out}"
                failed = EngineFailed(reason=reason, generation=parts.loop.state.generation)
                parts.notes.last_error = failed.to_wire()
                raise failed from error
            raise self._explained(error) from error
        finally:
            if self._kind == "turn":
                parts.usage.turn_ended(request.ticket.client)
            self.session_valid = valid
            crash_point("turn.done")
            parts.loop.feed(
                ev.OperationEnded(lease=lease.number, state_valid=valid, counts_as_use=self._kind != "fill")
            )

    async def _relieve(self, lease: TurnLease, host: WorkerHost) -> None:
        """At the turn's border: parked conversations are dropped while less than the reserve is free.

        Pressure that the model itself makes is only said, never acted on.
        """
        if self._pressed():
            await self._on_worker(lease, host, lambda number: TrimParked(turn=number, limit=0))
            self._pressed()
            self._parts.loop.log("memory is short: parked conversations were dropped")

    def _pressed(self) -> bool:
        """Look at free memory; said in the status, and acted on only by asking the worker to drop what is parked."""
        memory = self._parts.loads.read_memory()
        pressed = self._parts.notes.pressure = policy.under_pressure(memory, self._parts.settings)
        return pressed

    def _explained(self, error: ModeldError) -> ModeldError:
        if self.killed is not None:
            return self.killed
        if isinstance(error, EngineFailed):
            reason = str(error.data.get("reason") or "it stopped")
            return EngineFailed(reason=reason, generation=self._parts.loop.state.generation)
        return error

    async def _on_worker(self, lease: TurnLease, host: WorkerHost, make: Callable[[int], Job]) -> Done:
        parts, request = self._parts, self._request
        number = host.next_turn()
        lease.pin(number, parts.loop.now())
        self._stepped = parts.loop.now()
        self._prefilling = True
        job = make(number)
        self._had_images = self._had_images or holds_images(getattr(job, "messages", ()))

        def on_events(events: list[api.Event]) -> None:
            crash_point("turn.event")
            now = parts.loop.now()
            if any(isinstance(event, api.Prefill) for event in events):
                self._longest_step = max(self._longest_step, now - self._stepped)
            self._stepped = now
            self._prefilling = all(isinstance(event, api.Prefix | api.Prefill) for event in events)
            for event in events:
                lease.observe(event, now)
                request.emit(event)

        failure: ModeldError | None = None
        done: Done | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, lease, host)

            def stop() -> None:
                host.cancel(number)
                tasks.start_soon(self._kill_if_stuck, lease, host)

            request.stage = "running"
            request.on_stop = stop
            if request.stopped.is_set():
                stop()
            try:
                done = await host.run(job, on_events)
            except ModeldError as error:
                failure = error  # raised outside, or the group would wrap it
            finally:
                request.on_stop = None
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        assert done is not None
        return done

    def _fail(self, error: ModeldError) -> None:
        """The machine ended this operation by force; the worker's end will wake us."""
        self.killed = error
        self.on_killed()

    async def _kill_if_stuck(self, lease: TurnLease, host: WorkerHost) -> None:
        """A stop has a hard limit; then the worker dies, and the slot with it, never the daemon.

        A step of a prefill that has begun is evaluated to its end: while the worker computes it, that is progress.
        """
        usual, waited = self._parts.settings.cancel_limit, 0.0
        step = stop_limit(usual, self._longest_step)
        computed = processor_seconds(host.pid)
        while True:
            await anyio.sleep(step)
            waited += step
            before, computed = computed, processor_seconds(host.pid)
            computes = computed - before >= COMPUTES * step
            if not (self._prefilling and computes) or waited >= MOST_STOPS * usual:
                break
            step = usual
        self._parts.loop.log(f"{self._kind} did not stop within {waited:.1f} s: worker killed")
        self._parts.loop.feed(ev.OperationStuck(lease=lease.number, reason="it did not stop in time"))

    async def _watch(self, lease: TurnLease, host: WorkerHost) -> None:
        """Rounds while this operation runs: is its lease contradicted, and does its worker get anywhere?"""
        parts = self._parts
        settings = parts.settings
        reaper, stillness = Reaper(settings), Stillness(settings)
        stopped = 0
        while lease.open:
            await anyio.sleep(
                settings.reaper_interval if reaper.suspects(parts.leases, parts.loop.now()) else settings.reaper_silence
            )
            if parts.loop.frozen or not reaper.suspects(parts.leases, parts.loop.now()):
                stillness.forget()
                continue
            account = await host.sample()
            stopped = stopped + 1 if account is None and identity.is_stopped(host.pid) else 0
            if stopped >= STOPPED_LOOKS:
                self._end_stuck(lease, "a signal stopped it")
                return
            standing = None
            if account is not None:
                standing = Standing(
                    mark=account.mark, in_engine=account.in_engine, place=account.place, longest_s=account.longest_s
                )
            if (reason := stillness.judge(standing, parts.loop.now())) is not None:
                self._end_stuck(lease, reason)
                return
            spare = account is not None and account.stage == SPARE  # it will come to this work
            truth = EngineTruth(running=account.running) if account is not None and not spare else None
            for reaped in reaper.reconcile(parts.leases, truth, parts.loop.now()):
                parts.loop.log(
                    f"reaped {reaped.operation} of {reaped.holder} at {reaped.stage} after {reaped.age_s:.0f} s"
                )
                parts.records.audit("reaped", reaped.holder, {"operation": reaped.operation, "stage": reaped.stage})
                parts.loop.feed(ev.OperationStuck(lease=reaped.number, reason="the engine had forgotten it"))

    def _end_stuck(self, lease: TurnLease, reason: str) -> None:
        """Its worker gets nowhere: that dies, and the queue goes on with a new one."""
        parts, holder = self._parts, self._request.ticket.client_name
        parts.loop.log(f"{self._kind} of {holder} is stuck: {reason}; worker killed")
        parts.records.audit("stuck", holder, {"operation": self._kind, "reason": reason})
        parts.loop.feed(ev.OperationStuck(lease=lease.number, reason=reason))


def stop_limit(usual: float, longest_step: float) -> float:
    """Seconds in which a worker must have stopped: a step that has begun is evaluated to its end, and the machine may
    have become slower since. `longest_step` of this turn's prefill; bounded, however slow the steps are. Pure.
    """
    return min(max(usual, STEPS_TO_STOP * longest_step), MOST_STOPS * usual)
