"""The two clocks the product lives by.

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
