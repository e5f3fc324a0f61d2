"""The clocks of the product, set by hand."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only when asked to."""

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
