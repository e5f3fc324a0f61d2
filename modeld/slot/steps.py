"""Runs a turn whose steps the client requests one by one, under one lease of the slot.

Between two steps the slot stays Busy for this client, never longer than `step_gap`; every end (the client's,
a cancel, a lost client, a crash, a pause) gives it back, and what was evaluated stays warm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import anyio

from modeld.pipe.messages import Decode, Done, EndSteps, EnsurePrefix, Job, PrefillSuffix
from modeld.slot.operation import OnWorker, Operation
from modeld.slot.request import bounded
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from shared.errors import EngineFailed, ModelBusy, ModeldError, SessionClosed, SlotGenerationStale
from shared.protocol import api
from shared.protocol.faults import InvalidParams, RequestCancelled

if TYPE_CHECKING:
    from modeld.slot.caller import Client, Permission
    from modeld.slot.loop import Loop
    from modeld.slot.operations import Operations
    from modeld.slot.ports import Records
    from modeld.slot.scheduler import Scheduler
    from shared.catalog.entry import ModelEntry
    from shared.settings import Settings

StepName = Literal["ensure_prefix", "prefill_suffix", "decode"]
#: step -> the steps that it may follow; None is the beginning. The prefix may be asked for again until the decode.
_AFTER: dict[StepName, tuple[StepName | None, ...]] = {
    "ensure_prefix": (None, "ensure_prefix", "prefill_suffix"),
    "prefill_suffix": ("ensure_prefix",),
    "decode": ("prefill_suffix",),
}
_STAGES: dict[StepName, api.Stage] = {"ensure_prefix": "prefix", "prefill_suffix": "prefill", "decode": "generating"}
Emit = Callable[[api.Event], None]


class _Ask:
    """One step that a client waits for."""

    def __init__(self, name: StepName, make: Callable[[int], Job], emit: Emit) -> None:
        self.name = name
        self.make = make
        self.emit = emit
        self.done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """The end, once; its caller may have gone."""
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()


class HeldTurn:
    """Made for one session of one slot generation; `run` is its life."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        scheduler: Scheduler,
        operations: Operations,
        records: Records,
        handle: str,
        generation: int,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._scheduler = scheduler
        self._operations = operations
        self._records = records
        self.handle = handle
        self.name = ""
        self.generation = generation
        self.num_ctx = 0
        #: Why it is over, for people; "" while it is not.
        self.over = ""
        self.ended = anyio.Event()
        self.session_valid = True
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request: ScheduledRequest | None = None
        self._operation: Operation | None = None
        self._ask: _Ask | None = None
        self._last: StepName | None = None
        self._ending = False
        self._wake = anyio.Event()
        self._bound = api.Sampling()

    # --- its life, in a task of the slot -------------------------------------------------------

    async def run(self, client: Client, entry: ModelEntry, permission: Permission, emit: Emit) -> None:
        """Queue, hold the slot, serve the steps, give it back."""
        failure: BaseException | None = None
        try:
            await self._scheduler.submit(
                "turn", client, entry, api.LoadConfig(), permission, emit, self._hold, self._attach
            )
        except ModeldError as error:
            failure = error
        finally:
            self._conclude(failure)

    def _attach(self, request: ScheduledRequest) -> None:
        self._request = request
        if self._ending:
            self._scheduler.stop(request)

    def _conclude(self, failure: BaseException | None) -> None:
        request = self._request
        by = request.by if request is not None else ""
        if not self.over:
            self.over = str(failure) if failure is not None else f"it was ended by {by}" if by else "it was cancelled"
        closed = failure if failure is not None else self._closed()
        if not self._begun.done():
            self._begun.set_exception(failure or RequestCancelled())
            self._begun.exception()
        if self._ask is not None:
            self._ask.fail(closed)
        self.ended.set()

    def _closed(self) -> SessionClosed:
        return SessionClosed(f"turn {self.name} is over: {self.over}; begin another", handle=self.name)

    async def _hold(self, request: ScheduledRequest) -> None:
        if self._loop.state.generation != self.generation:
            raise SlotGenerationStale(expected=self.generation, actual=self._loop.state.generation)
        operation = self._operation = self._operations.start(request, "turn")
        operation.on_killed = self._wake_up
        self._records.turn_begun(request.ticket.number, request.ticket.client_name, request.ticket.model)
        how = "failed"
        try:
            how = (await operation.hold(self._serve)).finish_reason
            if request.stopped.is_set():
                raise Stopped
        except Stopped:
            how = "cancelled"
            raise
        except ModeldError as error:
            how = error.kind
            if request.stopped.is_set() and request.reason is None and isinstance(error, EngineFailed):
                raise Stopped from error  # killed because it did not stop: to its caller it is stopped
            raise
        finally:
            self.session_valid = operation.session_valid
            self._records.turn_ended(request.ticket.number, how)

    async def _serve(self, on_worker: OnWorker) -> Done:
        operation, request = self._operation, self._request
        assert operation is not None
        assert request is not None
        self.num_ctx = operation.num_ctx
        self._begun.set_result(None)
        done = Done(turn=0, finish_reason="stop", usage=api.Usage())
        while (ask := await self._next(operation, request)) is not None:
            done = await self._step(ask, on_worker, operation, request)
            if done.finish_reason == "cancelled" or not done.state_valid:
                return done
        request.emit = _ignore
        if self._last is not None:
            done = await on_worker(lambda number: EndSteps(turn=number))
        return done

    async def _next(self, operation: Operation, request: ScheduledRequest) -> _Ask | None:
        """The next step; None when the turn is over: stopped, ended by its client, or the pause was too long."""
        if operation.lease is not None:
            operation.lease.stage("between steps", self._loop.now())
        request.on_stop = self._wake_up
        gap = self._settings.step_gap
        try:
            with anyio.move_on_after(gap):
                while self._ask is None and not self._ending and not request.stopped.is_set() and not operation.killed:
                    await self._wake.wait()
        finally:
            request.on_stop = None
        if operation.killed is not None:
            raise operation.killed
        if request.stopped.is_set():
            return None
        if self._ask is None and not self._ending:
            self.over = f"no step was asked for within {gap:g} s"
        return self._ask

    async def _step(self, ask: _Ask, on_worker: OnWorker, operation: Operation, request: ScheduledRequest) -> Done:
        request.emit = ask.emit
        if operation.lease is not None:
            operation.lease.stage(_STAGES[ask.name], self._loop.now())
        try:
            done = await on_worker(ask.make)
        except ModeldError as error:
            self._last = None
            if operation.killed is not None or not getattr(error, "state_valid", False):
                raise
            ask.fail(error)  # the engine is sound: the client may begin again with other words
            self._ask = None
            return Done(turn=0, finish_reason="stop", usage=api.Usage())
        self._last = ask.name
        self._ask = None
        if not ask.done.done():
            ask.done.set_result(done)
        return done

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    # --- for the methods -----------------------------------------------------------------------

    async def begun(self) -> None:
        """Until it has the slot. Raises the typed errors of waiting, and RequestCancelled."""
        await asyncio.shield(self._begun)

    async def ensure_prefix(self, params: api.PrefixParams, emit: Emit) -> api.PrefixResult:
        """Raises ContextOverflow, TemplateFailed, UnsupportedFeature, SessionClosed, InvalidParams."""
        sampling = bounded(params.params, self.num_ctx, self._settings)
        total = 0

        def watched(event: api.Event) -> None:
            nonlocal total
            if isinstance(event, api.Prefix):
                total = event.total
            emit(event)

        done = await self._do(
            "ensure_prefix",
            lambda number: EnsurePrefix(
                turn=number,
                messages=params.messages,
                tools=params.tools,
                params=sampling,
                conversation=params.conversation,
            ),
            watched,
        )
        return api.PrefixResult(reused=done.usage.reused, total=total)

    async def prefill_suffix(self, emit: Emit) -> api.Usage:
        """Raises RequestCancelled, SessionClosed, InvalidParams (out of order), EngineFailed."""
        done = await self._do("prefill_suffix", lambda number: PrefillSuffix(turn=number), emit)
        if done.finish_reason == "cancelled":
            await self.ended.wait()
            raise self._closed() if self._request is not None and self._request.by else RequestCancelled()
        return done.usage

    async def decode(self, emit: Emit) -> api.TurnResult:
        """The final event, also of a cancelled decode. Raises SessionClosed, InvalidParams, EngineFailed."""
        done = await self._do("decode", lambda number: Decode(turn=number), emit)
        operation, request = self._operation, self._request
        assert operation is not None
        assert request is not None
        if done.finish_reason == "cancelled":
            await self.ended.wait()  # only then is it known whether the session is still good
        return self._operations.finished(request, operation, done)

    async def _do(self, name: StepName, make: Callable[[int], Job], emit: Emit) -> Done:
        if self.over or self._ending:
            raise self._closed()
        if self._ask is not None:
            holder = self._request.ticket.client_name if self._request is not None else ""
            raise ModelBusy(operation=self._ask.name, holder=holder, since=0.0, queued=0)
        if self._last not in _AFTER[name]:
            raise InvalidParams(at="$.turn", reason=f"{name} cannot follow {self._last or 'the beginning'}")
        ask = self._ask = _Ask(name, make, emit)
        self._wake_up()
        return await asyncio.shield(ask.done)

    def stop(self) -> None:
        """Cancel it, wherever it is."""
        if self._request is not None:
            self._scheduler.stop(self._request)
        else:
            self._ending = True

    async def end(self) -> None:
        """Give the slot back, and see that it is. Idempotent."""
        if not self.over:
            self.over = "its client ended it"
        if self._ask is not None:
            self.stop()
        self._ending = True
        self._wake_up()
        await self.ended.wait()


def _ignore(event: api.Event) -> None:
    """Between steps nobody listens."""
