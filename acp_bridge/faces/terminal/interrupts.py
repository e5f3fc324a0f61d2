"""Ctrl-C at a terminal: the first one of a turn stops its answer, the next one leaves. On every system."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

import anyio

from shared.diagnosis.threads import poster


class Left(Exception):
    """The person left with Ctrl-C. A KeyboardInterrupt raised in a task would tear the event loop."""


class Interrupts:
    """Hears SIGINT while it is entered, in the main thread. `first` is what the next Ctrl-C does instead of leaving.

    A handler of Python and not one of the loop: those do not exist on Windows.
    """

    def __init__(self) -> None:
        self.first: Callable[[], None] | None = None
        self._leave = anyio.Event()
        self._post = poster()
        self._before: object = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._post(self.came)

    def came(self) -> None:
        """One Ctrl-C."""
        first, self.first = self.first, None
        if first is not None:
            first()
        else:
            self._leave.set()

    async def watch(self) -> None:
        """Raises Left once there is nothing that the next Ctrl-C would stop."""
        await self._leave.wait()
        raise Left
