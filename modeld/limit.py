"""The last word over a process that should have ended: a thread that hangs in a look at a disk keeps nobody waiting."""

from __future__ import annotations

import os
import threading
import time

#: What a process tells that had to be ended by its own limit.
CODE = 1


class Limit:
    """Ends this process without more ado some seconds after `set`, unless `cancel` comes first."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._at = 0.0

    def set(self, seconds: float) -> None:
        """End it `seconds` from now; a second call may only bring the moment nearer."""
        at = time.monotonic() + seconds
        if self._timer is not None:
            if at >= self._at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = threading.Timer(seconds, os._exit, (CODE,))
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """It has ended in order."""
        if self._timer is not None:
            self._timer.cancel()


def leave(code: int) -> None:
    """End now where a thread that nobody can end would be waited for; else do nothing. Flushes nothing."""
    mine = threading.current_thread()
    if any(thread.is_alive() and not thread.daemon and thread is not mine for thread in threading.enumerate()):
        os._exit(code)
