"""What runs on the resident model: a turn, vectors, a warm-up, a fill. Each holds a lease to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, cast

import anyio

from modeld.log.logline import fields_line, turn_line
from modeld.pipe.messages import SPARE, Done, Embed, Fill, Job, TrimParked, Turn, Warm
from modeld.slot.core import events as ev
from modeld.slot.request import bounded
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from modeld.template.message_parts import holds_images
from modeld.turn.reaper import EngineTruth, Reaper
from modeld.turn.stillness import Standing, Stillness
from shared.errors import EngineFailed, ModeldError, ModelLoadFailed, SlotGenerationStale
from shared.lease.crashpoint import crash_point
from shared.lease.process import identity
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.host.worker_host import WorkerHost
    from modeld.slot.driver import Slot
    from modeld.turn.lease import TurnLease
    from shared.catalog.entry import ModelEntry

Kind = Literal["turn", "embed", "warm", "fill"]
#: Lets the worker do one piece of work under the operation's lease.
OnWorker = Callable[[Callable[[int], Job]], Awaitable[Done]]
#: A worker that a signal stopped may be let go on by the one who stopped it; it is ended when so many looks find it so.
STOPPED_LOOKS = 3


class Operation:
    """One protected operation on the resident model. `run` or `hold` once."""

    def __init__(self, slot: Slot, request: ScheduledRequest, kind: Kind) -> None:
        self._slot = slot
        self._request = request
        self._kind = kind
        self.lease: TurnLease | None = None
        self.killed: ModeldError | None = None
        self.on_killed: Callable[[], None] = lambda: None
        self.generation = 0
        self.num_ctx = 0
        self.session_valid = True
        self._had_images = False

    async def run(self, make: Callable[[int], Job]) -> Done:
        """Take the slot, let the worker do it, give the slot back on every path. Raises as `hold`."""
        return await self.hold(lambda on_worker: on_worker(make))

    async def hold(self, body: Callable[[OnWorker], Awaitable[Done]]) -> Done:
        """Take the slot for as long as `body` takes; what it answers tells in what state the engine is.

        Raises Stopped, EngineFailed, and what the engine raises.
        """
        slot, request = self._slot, self._request
        await slot.owner.confirm()
        crash_point("turn.confirmed")
        if request.stopped.is_set():
            raise Stopped
        lease = self.lease = slot.leases.begin(self._kind, request.ticket.client_name, slot.now(), "prefix")
        slot.on_failure(lease.number, self._fail)
        try:
            return await self._run(lease, body)
        finally:
            slot.on_failure(lease.number, None)
            lease.end()

    async def _run(self, lease: TurnLease, body: Callable[[OnWorker], Awaitable[Done]]) -> Done:
        slot, request = self._slot, self._request
        worker = slot.machine.state.worker
        host = slot.workers.host(worker)
        if host is None or worker is None:
            raise EngineFailed(reason="the worker process has ended", generation=slot.machine.state.generation)
        client = request.ticket.client_name
        slot.feed(ev.OperationStarted(lease=lease.number, operation=self._kind, holder=client))
        crash_point("turn.started")
        state = slot.machine.state
        self.generation = state.generation
        self.num_ctx = state.active.num_ctx if state.active is not None else 0
        if self._kind == "turn":
            slot.scheduler.uses.used(request.ticket.client, client, slot.now())
        valid = False
        try:
            done = await body(lambda make: self._on_worker(lease, host, make))
            valid = done.state_valid
            if self._kind == "turn" and valid:
                await self._relieve(lease, host)
            return done
        except ModeldError as error:
            slot.workers.note_exit(worker)  # a crash is reported as a crash, before the slot is given back
            valid = bool(getattr(error, "state_valid", False)) and not host.exited.is_set()
            if self._had_images and host.crashed and state.active is not None and state.active.projector:
                left_out = slot.loads.projectors.note(state.active.path, state.active.projector, host.exit_reason)
                reason = f"{host.exit_reason} over an image; {left_out}"
                failed = EngineFailed(reason=reason, generation=slot.machine.state.generation)
                slot.last_error = failed.to_wire()
                raise failed from error
            raise self._explained(error) from error
        finally:
            if self._kind == "turn":
                slot.scheduler.uses.ended(request.ticket.client, slot.now())
                if slot.is_connected(request.ticket.client):
                    slot.scheduler.queue.note_use(request.ticket.client, slot.now())
            self.session_valid = valid
            crash_point("turn.done")
            slot.feed(ev.OperationEnded(lease=lease.number, state_valid=valid, counts_as_use=self._kind != "fill"))

    async def _relieve(self, lease: TurnLease, host: WorkerHost) -> None:
        """At the turn's border: parked conversations are dropped while less than the reserve is free.

        Pressure that the model itself makes is only said, never acted on.
        """
        slot = self._slot
        slot.note_pressure()
        if slot.pressure:
            await self._on_worker(lease, host, lambda number: TrimParked(turn=number, limit=0))
            slot.note_pressure()
            slot.log("memory is short: parked conversations were dropped")

    def _explained(self, error: ModeldError) -> ModeldError:
        if self.killed is not None:
            return self.killed
        if isinstance(error, EngineFailed):
            reason = str(error.data.get("reason") or "it stopped")
            return EngineFailed(reason=reason, generation=self._slot.machine.state.generation)
        return error

    async def _on_worker(self, lease: TurnLease, host: WorkerHost, make: Callable[[int], Job]) -> Done:
        slot, request = self._slot, self._request
        number = host.next_turn()
        lease.pin(number, slot.now())
        job = make(number)
        self._had_images = self._had_images or holds_images(getattr(job, "messages", ()))

        def on_events(events: list[api.Event]) -> None:
            crash_point("turn.event")
            now = slot.now()
            for event in events:
                lease.observe(event, now)
                request.emit(event)

        failure: ModeldError | None = None
        done: Done | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, lease, host)

            def stop() -> None:
                host.cancel(number)
                tasks.start_soon(self._kill_if_stuck, lease)

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

    async def _kill_if_stuck(self, lease: TurnLease) -> None:
        """A stop has a hard limit; then the worker dies, and the slot with it, never the daemon."""
        await anyio.sleep(self._slot.settings.cancel_limit)
        self._slot.log(f"{self._kind} did not stop within {self._slot.settings.cancel_limit} s: worker killed")
        self._slot.feed(ev.OperationStuck(lease=lease.number, reason="it did not stop in time"))

    async def _watch(self, lease: TurnLease, host: WorkerHost) -> None:
        """Rounds while this operation runs: is its lease contradicted, and does its worker get anywhere?"""
        slot = self._slot
        settings = slot.settings
        reaper, stillness = Reaper(settings), Stillness(settings)
        stopped = 0
        while lease.open:
            await anyio.sleep(
                settings.reaper_interval if reaper.suspects(slot.leases, slot.now()) else settings.reaper_silence
            )
            if slot.frozen or not reaper.suspects(slot.leases, slot.now()):
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
            if (reason := stillness.judge(standing, slot.now())) is not None:
                self._end_stuck(lease, reason)
                return
            spare = account is not None and account.stage == SPARE  # it will come to this work
            truth = EngineTruth(running=account.running) if account is not None and not spare else None
            for reaped in reaper.reconcile(slot.leases, truth, slot.now()):
                slot.log(f"reaped {reaped.operation} of {reaped.holder} at {reaped.stage} after {reaped.age_s:.0f} s")
                slot.records.audit("reaped", reaped.holder, {"operation": reaped.operation, "stage": reaped.stage})
                slot.feed(ev.OperationStuck(lease=reaped.number, reason="the engine had forgotten it"))

    def _end_stuck(self, lease: TurnLease, reason: str) -> None:
        """Its worker gets nowhere: that dies, and the queue goes on with a new one."""
        slot, holder = self._slot, self._request.ticket.client_name
        slot.log(f"{self._kind} of {holder} is stuck: {reason}; worker killed")
        slot.records.audit("stuck", holder, {"operation": self._kind, "reason": reason})
        slot.feed(ev.OperationStuck(lease=lease.number, reason=reason))


async def turn(slot: Slot, request: ScheduledRequest, entry: ModelEntry, params: api.TurnParams) -> api.TurnResult:
    """`session/turn` from the grant to its final event."""
    await slot.loads.ensure(request, entry, params.config)
    operation = Operation(slot, request, "turn")
    slot.records.turn_begun(request.ticket.number, request.ticket.client_name, entry.name)
    how = "failed"
    try:
        done = await operation.run(
            lambda number: Turn(
                turn=number,
                messages=params.messages,
                tools=params.tools,
                params=bounded(params.params, operation.num_ctx, slot.settings),
                conversation=params.conversation,
                prompt=params.prompt,
            )
        )
        how = done.finish_reason
    except Stopped:
        how = "cancelled"
        raise
    except ModeldError as error:
        how = error.kind
        slot.log(fields_line("turn", client=request.ticket.client_name, model=request.ticket.model, finish=how))
        if request.stopped.is_set() and request.reason is None and isinstance(error, EngineFailed):
            how = "cancelled"
            raise Stopped from error  # killed because it did not stop: to its caller it is stopped
        if request.reason is not None:
            raise request.reason from error
        raise
    finally:
        slot.records.turn_ended(request.ticket.number, how)
        crash_point("turn.ended")
    result = turn_result(slot, request, operation, done)
    slot.last_turn = result
    slot.log(turn_line(request.ticket.client_name, result))
    if request.reason is not None:
        raise request.reason
    return result


def turn_result(slot: Slot, request: ScheduledRequest, operation: Operation, done: Done) -> api.TurnResult:
    """The final event of a turn. What is odd about the model is reported by the turn that loaded it alone."""
    reason = done.finish_reason
    if reason == "cancelled":
        reason = request.finish_reason
    decoded = done.usage.generated
    return api.TurnResult(
        finish_reason=cast("api.FinishReason", reason),
        model=request.ticket.model,
        usage=done.usage,
        timings=api.Timings(
            queued_s=round(request.granted_at - request.ticket.arrived, 4),
            load_s=round(request.load_s, 4),
            prefill_s=done.prefill_s,
            first_token_s=done.first_token_s,
            decode_s=done.decode_s,
            tokens_per_s=round(decoded / done.decode_s, 2) if done.decode_s > 0 else 0.0,
            threads=done.threads,
        ),
        generation=operation.generation,
        num_ctx=operation.num_ctx,
        tool_calls=done.tool_calls,
        session_valid=operation.session_valid,
        by=request.by if reason == "cancelled_by_other" else "",
        warnings=[*(slot.loads.warnings if request.load_s > 0 else []), *done.warnings],
        ended_by=done.ended_by,
    )


async def embed(slot: Slot, request: ScheduledRequest, entry: ModelEntry, params: api.EmbedParams) -> api.EmbedResult:
    """`model/embed` on the one slot: never a second model."""
    await slot.loads.ensure(request, entry, params.config)
    operation = Operation(slot, request, "embed")
    done = await operation.run(lambda number: Embed(turn=number, texts=params.texts))
    if done.finish_reason == "cancelled":
        raise Stopped
    return api.EmbedResult(vectors=done.vectors, tokens=done.usage.prefilled, generation=operation.generation)


async def warm(slot: Slot, request: ScheduledRequest, params: api.WarmParams) -> api.Usage:
    """`session/warm`: the prefix alone, on the resident model."""
    operation = Operation(slot, request, "warm")
    done = await operation.run(lambda number: Warm(turn=number, messages=params.messages, tools=params.tools))
    return done.usage


async def fill(slot: Slot, request: ScheduledRequest, params: api.FillParams) -> api.FillResult:
    """`completion/fill` on the resident model; it never extends the idle timer."""
    operation = Operation(slot, request, "fill")
    done = await operation.run(
        lambda number: Fill(
            turn=number,
            prefix=params.prefix,
            suffix=params.suffix,
            params=bounded(params.params, operation.num_ctx, slot.settings),
        )
    )
    return api.FillResult(text=done.text, usage=done.usage)


async def load(slot: Slot, request: ScheduledRequest, entry: ModelEntry, params: api.LoadParams) -> api.LoadResult:
    """`model/load` from the grant on. Raises SlotGenerationStale besides the errors of a load."""
    require_expected(slot, params.expect)
    loaded = await slot.loads.ensure(request, entry, params.config)
    active = slot.active()
    if active is None:
        raise ModelLoadFailed(model=entry.name, stage="worker", reason="it was unloaded again at once")
    return api.LoadResult(
        active=active,
        generation=slot.machine.state.generation,
        loaded=loaded,
        load_seconds=round(request.load_s, 3) if loaded else 0.0,
        warnings=list(slot.loads.warnings),
    )


async def unload(slot: Slot, request: ScheduledRequest, params: api.UnloadParams) -> api.UnloadResult:
    """`model/unload` from the grant to the worker's end. Idempotent."""
    require_expected(slot, params.expect)
    state = slot.machine.state
    name = state.active.name if state.active is not None else ""
    freed = (slot.loads.measured or 0) if name else 0
    slot.feed(ev.UnloadAsked(reason="asked for"))
    await slot.until_closed()
    if name:
        slot.log(f"unloaded {name} for {request.ticket.client_name}")
    return api.UnloadResult(freed=name, freed_bytes=freed, generation=slot.machine.state.generation)


def require_expected(slot: Slot, expect: api.Expect | None) -> None:
    """Compare-and-swap: the slot must be where its caller saw it. Raises SlotGenerationStale."""
    if expect is None:
        return
    state = slot.machine.state
    if expect.generation is not None and expect.generation != state.generation:
        raise SlotGenerationStale(expected=expect.generation, actual=state.generation)
    active = state.active.name if state.active is not None else ""
    if expect.model is not None and expect.model != active:
        message = f"{active or 'nothing'} is active, not {expect.model or 'nothing'}; ask for the status again"
        raise SlotGenerationStale(message, expected=expect.model, actual=active)
