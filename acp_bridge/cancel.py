"""A cancel that belongs to one prompt and can never leak into the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class TurnCancelled(Exception):
    """Unwinds a turn whose cancel was requested. Never leaves the turn: it ends as `cancelled`."""


class Cancel:
    """Requested once; callbacks run at once, also those added after the request."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        """Whether the turn is to end."""
        return self.event.is_set()

    def request(self) -> None:
        """Ask the turn to end. Safe to call again."""
        if self.requested:
            return
        self.event.set()
        for callback in self._callbacks:
            callback()

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the request, or now when it has come already."""
        self._callbacks.append(callback)
        if self.requested:
            callback()

    def check(self) -> None:
        """Raise TurnCancelled when requested."""
        if self.requested:
            raise TurnCancelled

    async def race(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, or TurnCancelled as soon as the cancel comes; `work` is then abandoned."""
        self.check()
        outcome: list[T] = []
        failure: list[Exception] = []
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await self.event.wait()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                outcome.append(await work())
            except Exception as error:
                failure.append(error)
            group.cancel_scope.cancel()
        if failure:
            raise failure[0]
        if not outcome:
            raise TurnCancelled
        return outcome[0]
