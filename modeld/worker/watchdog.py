"""Ends the worker when its owner is dead or frozen."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from modeld.pipe import exits

_STEPS = 4


class Watchdog:
    """Ends the process when the owner has been silent for `limit` awake seconds.

    Time is counted in steps of this thread's own waking: a worker that was itself stopped (or a machine
    that slept) does not charge that time to the owner, whose heartbeats may wait in the pipe: `waiting` says whether
    anything does. As long again is given to a reader that does not come to it, and no more.
    """

    def __init__(
        self,
        limit: float,
        owner: int,
        leave: Callable[[int], None] = os._exit,
        waiting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._limit = limit
        self._owner = owner
        self._leave = leave
        self._waiting = waiting
        self._silent = 0.0
        self._lock = threading.Lock()

    def heard(self) -> None:
        """Anything from the owner."""
        with self._lock:
            self._silent = 0.0

    def step(self, slept: float) -> float:
        """Count one wait of `slept` seconds; the silence by now, in seconds."""
        with self._lock:
            self._silent += min(slept, 2 * self._limit / _STEPS)
            return self._silent

    def ends(self, slept: float) -> bool:
        """Whether after one more wait of `slept` seconds the owner has been silent for too long."""
        silent = self.step(slept)
        return silent >= 2 * self._limit or (silent >= self._limit and not self._waiting())

    def run(self) -> None:
        """Body of the watchdog thread."""
        pause = self._limit / _STEPS
        while True:
            before = time.monotonic()
            time.sleep(pause)
            if self.ends(time.monotonic() - before):
                self._leave(exits.OWNER_SILENT)
            if sys.platform != "win32" and os.getppid() != self._owner:
                self._leave(exits.OWNER_GONE)


def unread(descriptor: int) -> bool:
    """Whether bytes (or the end) wait in a pipe. False on Windows, where nothing tells for such a pipe."""
    if sys.platform == "win32":
        return False
    import select

    return bool(select.select([descriptor], [], [], 0)[0])


def end_with_owner(owner: int) -> None:
    """Ask the system to kill this process when the owner's thread that started it ends (Linux).

    Must run on the main thread. The owner may have died before the request was in place, so its pid is
    compared afterwards. Elsewhere the closing pipe, a job object (Windows) and the watchdog serve.
    """
    if sys.platform.startswith("linux"):
        import ctypes
        import signal

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)
    if sys.platform != "win32" and os.getppid() != owner:
        os._exit(exits.OWNER_GONE)
