"""Tracks which turn runs in this worker and stops it; a cancel never touches another turn."""

from __future__ import annotations

import threading
import time

from modeld.engine.contract import AbortFlag


class TurnGate:
    """Binds the abort flag to one turn at a time, under one lock.

    Turn numbers rise. A cancel for the running turn sets the flag; one for a turn that has not begun
    is remembered and set at its start; one for a turn that has ended does nothing.
    """

    def __init__(self, abort: AbortFlag) -> None:
        self._abort = abort
        self._lock = threading.Lock()
        self._running: int | None = None
        self._ended = 0
        self._early: set[int] = set()
        self._spare = False

    def start(self, turn: int) -> None:
        """The engine begins with `turn`: the flag is clear unless exactly this turn was cancelled before."""
        with self._lock:
            self._running = turn
            self._abort.clear()
            if turn in self._early:
                self._abort.set()

    def end(self) -> None:
        """The engine is idle; the flag is clear."""
        with self._lock:
            if self._running is not None:
                self._ended = max(self._ended, self._running)
            self._running = None
            self._spare = False
            self._early = {turn for turn in self._early if turn > self._ended}
            self._abort.clear()

    def begin_spare(self) -> None:
        """The engine does something that nobody waits for, until `end`. Whoever needs it says `interrupt_spare`."""
        with self._lock:
            self._spare = True

    def interrupt_spare(self) -> None:
        """ScheduledRequest has come: stop what nobody waits for."""
        with self._lock:
            if self._spare:
                self._abort.set()

    def cancel(self, turn: int) -> None:
        """Stop `turn` if it runs, or keep it from starting."""
        with self._lock:
            if turn == self._running:
                self._abort.set()
            elif turn > self._ended:
                self._early.add(turn)


class Activity:
    """The worker's own account of what its engine thread does. Written there, read anywhere."""

    __slots__ = ("longest", "running", "seen", "stage")

    def __init__(self) -> None:
        self.running: int | None = None
        self.stage = "idle"
        self.seen = time.monotonic()
        self.longest = 0.0

    def enter(self, stage: str, turn: int | None) -> None:
        """Another stage, or another turn, begins: that is progress too."""
        self.running, self.stage, self.seen = turn, stage, time.monotonic()

    def step(self) -> None:
        """The engine has made a step: one of several alike, and as long as the next may take."""
        now = time.monotonic()
        self.longest = max(self.longest, now - self.seen)
        self.seen = now
