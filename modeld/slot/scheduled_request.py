"""One request at run time: its ticket, its event callback, its stop, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import anyio

from modeld.turn.queue import Ticket
from shared.errors import ModeldError
from shared.protocol.api import Event, Queued, Timings, TurnResult, Usage

Stage = Literal["queued", "preparing", "running", "ended"]
T = TypeVar("T")


class Stopped(Exception):
    """The work was stopped before the engine ran it."""


class ScheduledRequest:
    """Made at admission, ended exactly once. `stop` may be called at any time and from any stage.

    `allow_load`, `allow_switch`, `consent`: what its caller permits. `outcome` is the result or a typed error.
    """

    def __init__(
        self,
        ticket: Ticket,
        emit: Callable[[Event], None],
        *,
        allow_load: bool,
        allow_switch: bool,
        consent: bool,
    ) -> None:
        self.ticket = ticket
        self.emit = emit
        self.allow_load = allow_load
        self.allow_switch = allow_switch
        self.consent = consent
        self.stage: Stage = "queued"
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stopped = anyio.Event()
        self.by = ""
        self.reason: ModeldError | None = None
        self.on_stop: Callable[[], None] | None = None
        self.granted_at = 0.0
        self.load_s = 0.0
        self._reported: Queued | None = None

    def stop(self, by: str = "", reason: ModeldError | None = None) -> None:
        """End it at the next safe point. `by` names another client that asked for it; the first stop counts.

        With `reason` its caller gets that error in place of a cancelled result.
        """
        if self.stopped.is_set():
            return
        self.by = by
        self.reason = reason
        self.stopped.set()
        if self.on_stop is not None:
            self.on_stop()

    async def unless_stopped(self, what: Callable[[], Awaitable[T]]) -> T:
        """The result of `what`, which is cancelled as soon as the work is stopped. Raises Stopped."""
        results: list[T] = []
        failures: list[Exception] = []
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                await self.stopped.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            try:
                results.append(await what())
            except Exception as error:
                failures.append(error)  # raised outside, or the group would wrap it
            tasks.cancel_scope.cancel()
        if failures:
            raise failures[0]
        if not results:
            raise Stopped
        return results[0]

    @property
    def finish_reason(self) -> str:
        """How a stopped turn ends."""
        return "cancelled_by_other" if self.by else "cancelled"

    @property
    def reported(self) -> bool:
        """Whether its caller knows of a place at all."""
        return self._reported is not None

    def place(self, position: int, ahead: list[str]) -> None:
        """Tell the caller its place, when it changed."""
        event = Queued(position=position, ahead=ahead)
        if event != self._reported:
            self._reported = event
            self.emit(event)

    def stopped_result(self, now: float, generation: int) -> TurnResult:
        """What a caller gets whose work never reached the engine."""
        queued = (self.granted_at or now) - self.ticket.arrived
        return TurnResult(
            finish_reason="cancelled_by_other" if self.by else "cancelled",
            model=self.ticket.model,
            usage=Usage(),
            timings=Timings(queued_s=round(queued, 4), load_s=round(self.load_s, 4)),
            generation=generation,
            by=self.by,
        )

    def succeed(self, result: Any) -> None:
        """The end, once."""
        self.stage = "ended"
        if not self.outcome.done():
            self.outcome.set_result(result)

    def fail(self, error: BaseException) -> None:
        """The end, once."""
        self.stage = "ended"
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # the caller may have gone: then nobody looks at it
