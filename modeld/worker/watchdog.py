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

    Time is counted in this thread's own waits, each as long as it was meant to be: where the machine is busy, slept, or
    native code keeps the interpreter's lock through a load, the delay is the worker's own and no silence of the owner.
    Nor is a reader that does not come to read: `arrived` says how many bytes wait in the pipe, and more than at the
    last look are a sign of life. What an owner wrote before it froze is none.
    """

    def __init__(
        self,
        limit: float,
        owner: int,
        leave: Callable[[int], None] = os._exit,
        arrived: Callable[[], int] = lambda: 0,
    ) -> None:
        self._limit = limit
        self._owner = owner
        self._leave = leave
        self._arrived = arrived
        self._waiting = 0
        self._silent = 0.0
        self._lock = threading.Lock()

    def heard(self) -> None:
        """Anything from the owner."""
        with self._lock:
            self._silent = 0.0

    def step(self, slept: float) -> float:
        """Count one wait of `slept` seconds; the silence by now, in seconds."""
        with self._lock:
            self._silent += min(slept, self._limit / _STEPS)
            return self._silent

    def ends(self, slept: float) -> bool:
        """Whether after one more wait of `slept` seconds the owner has been silent for too long."""
        before, self._waiting = self._waiting, self._arrived()
        if self._waiting > before:
            self.heard()
        return self.step(slept) >= self._limit

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


def unread(descriptor: int) -> int:
    """Bytes that wait in a pipe. 0 on Windows, where to ask would wait for who reads it."""
    if sys.platform == "win32":
        return 0
    import fcntl
    import struct
    import termios

    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])


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
