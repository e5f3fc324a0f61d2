"""The two clocks the product lives by, and one that tests set by hand.

`awake` seconds stop while the machine sleeps and decide every expiry; `wall` seconds are for
people and for comparing records of different processes. Decision code gets the numbers, never
the clock.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for the shells."""

    def awake(self) -> float:
        """Seconds that stop in suspend; comparable within this process only."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, UTC. May jump."""
        ...


class SystemClock:
    """The machine's clocks (`time.monotonic` stops in suspend on Linux and macOS)."""

    def awake(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, awake: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._awake = awake
        self._wall = wall

    def awake(self) -> float:
        return self._awake

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Both clocks go on by `seconds`."""
        self._awake += seconds
        self._wall += seconds

    def jump_wall(self, seconds: float) -> None:
        """Only the wall clock jumps (a time step, or a suspend as seen by `awake`)."""
        self._wall += seconds
