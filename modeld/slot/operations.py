"""What granted requests do: load and unload, and on the resident model a turn, vectors, a warm-up, a fill."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from modeld.log.logline import fields_line, turn_line
from modeld.pipe.messages import Done, Embed, Fill, Turn, Warm
from modeld.slot.core import events as ev
from modeld.slot.operation import Kind, Operation, Resources, Usage
from modeld.slot.request import bounded, require_expected
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from shared.errors import EngineFailed, ModeldError, ModelLoadFailed
from shared.lease.crashpoint import crash_point
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.slot.loading.loads import Loads
    from modeld.slot.loop import Loop, Notes
    from modeld.slot.ports import Records
    from modeld.slot.worker_supervisor import WorkerSupervisor
    from modeld.turn.lease import LeaseTable
    from shared.catalog.entry import ModelEntry
    from shared.settings import Settings


class Operations:
    """Runs granted requests. `confirm` sees that nobody else owns the hardware."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        *,
        confirm: Callable[[], Awaitable[object]],
        records: Records,
        leases: LeaseTable,
        workers: WorkerSupervisor,
        usage: Usage,
        loads: Loads,
        notes: Notes,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._records = records
        self._loads = loads
        self._notes = notes
        self._failing: dict[int, Callable[[ModeldError], None]] = {}
        self._parts = Resources(loop, settings, confirm, records, leases, workers, usage, loads, notes, self._failing)

    def start(self, request: ScheduledRequest, kind: Kind) -> Operation:
        """Make the operation of a granted request; it does not run yet."""
        return Operation(self._parts, request, kind)

    def fail(self, lease: int, error: ModeldError) -> None:
        """The machine ended the operation of that lease by force."""
        fail = self._failing.get(lease)
        if fail is not None:
            fail(error)

    async def load(self, request: ScheduledRequest, entry: ModelEntry, params: api.LoadParams) -> api.LoadResult:
        """`model/load` from the grant on. Raises SlotGenerationStale besides the errors of a load."""
        require_expected(self._loop.state, params.expect)
        loaded = await self._loads.ensure(request, entry, params.config)
        active = self._loads.active()
        if active is None:
            raise ModelLoadFailed(model=entry.name, stage="worker", reason="it was unloaded again at once")
        return api.LoadResult(
            active=active,
            generation=self._loop.state.generation,
            loaded=loaded,
            load_seconds=round(request.load_s, 3) if loaded else 0.0,
            warnings=list(self._loads.warnings),
        )

    async def unload(self, request: ScheduledRequest, params: api.UnloadParams) -> api.UnloadResult:
        """`model/unload` from the grant to the worker's end. Idempotent."""
        require_expected(self._loop.state, params.expect)
        state = self._loop.state
        name = state.active.name if state.active is not None else ""
        freed = (self._loads.measured or 0) if name else 0
        self._loop.feed(ev.UnloadAsked(reason="asked for"))
        await self._loop.until(lambda: not self._loop.state.closing)
        if name:
            self._loop.log(f"unloaded {name} for {request.ticket.client_name}")
        return api.UnloadResult(freed=name, freed_bytes=freed, generation=self._loop.state.generation)

    async def turn(self, request: ScheduledRequest, entry: ModelEntry, params: api.TurnParams) -> api.TurnResult:
        """`session/turn` from the grant to its final event."""
        await self._loads.ensure(request, entry, params.config)
        operation = self.start(request, "turn")
        self._records.turn_begun(request.ticket.number, request.ticket.client_name, entry.name)
        how = "failed"
        try:
            done = await operation.run(
                lambda number: Turn(
                    turn=number,
                    messages=params.messages,
                    tools=params.tools,
                    params=bounded(params.params, operation.num_ctx, self._settings),
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
            ticket = request.ticket
            self._loop.log(fields_line("turn", client=ticket.client_name, model=ticket.model, finish=how))
            if request.stopped.is_set() and request.reason is None and isinstance(error, EngineFailed):
                how = "cancelled"
                raise Stopped from error  # killed because it did not stop: to its caller it is stopped
            if request.reason is not None:
                raise request.reason from error
            raise
        finally:
            self._records.turn_ended(request.ticket.number, how)
            crash_point("turn.ended")
        result = self.finished(request, operation, done)
        if request.reason is not None:
            raise request.reason
        return result

    def finished(self, request: ScheduledRequest, operation: Operation, done: Done) -> api.TurnResult:
        """The final event of a turn, logged, and shown by the status."""
        warnings = self._loads.warnings if request.load_s > 0 else []
        result = self._notes.last_turn = turn_result(request, operation, done, warnings)
        self._loop.log(turn_line(request.ticket.client_name, result))
        return result

    async def embed(self, request: ScheduledRequest, entry: ModelEntry, params: api.EmbedParams) -> api.EmbedResult:
        """`model/embed` on the one slot: never a second model."""
        await self._loads.ensure(request, entry, params.config)
        operation = self.start(request, "embed")
        done = await operation.run(lambda number: Embed(turn=number, texts=params.texts))
        if done.finish_reason == "cancelled":
            raise Stopped
        return api.EmbedResult(vectors=done.vectors, tokens=done.usage.prefilled, generation=operation.generation)

    async def warm(self, request: ScheduledRequest, params: api.WarmParams) -> api.Usage:
        """`session/warm`: the prefix alone, on the resident model."""
        operation = self.start(request, "warm")
        done = await operation.run(lambda number: Warm(turn=number, messages=params.messages, tools=params.tools))
        return done.usage

    async def fill(self, request: ScheduledRequest, params: api.FillParams) -> api.FillResult:
        """`completion/fill` on the resident model; it never extends the idle timer."""
        operation = self.start(request, "fill")
        done = await operation.run(
            lambda number: Fill(
                turn=number,
                prefix=params.prefix,
                suffix=params.suffix,
                params=bounded(params.params, operation.num_ctx, self._settings),
            )
        )
        return api.FillResult(text=done.text, usage=done.usage)


def turn_result(request: ScheduledRequest, operation: Operation, done: Done, warnings: list[str]) -> api.TurnResult:
    """The final event of a turn. `warnings`: what is odd about the model, from the turn that loaded it alone."""
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
        warnings=[*warnings, *done.warnings],
        ended_by=done.ended_by,
    )
