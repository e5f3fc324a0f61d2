"""The last word over a process that should have ended: a thread that hangs in a look at a disk keeps nobody waiting."""

from __future__ import annotations

import os
import threading
import time
from typing import NoReturn

#: What a process tells that had to be ended by its own limit.
CODE = 1


class Limit:
    """Ends this process without more ado some seconds after `set`, unless `cancel` comes first.

    Its thread is there from the start: at the end there may be none to be had. Raises RuntimeError there.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._over = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="end-limit", daemon=True).start()

    def set(self, seconds: float) -> None:
        """End it `seconds` from now; a second call may only bring the moment nearer."""
        at = time.monotonic() + seconds
        with self._changed:
            self._at = at if self._at is None else min(self._at, at)
            self._changed.notify()

    def cancel(self) -> None:
        """Stand down: the process has ended in order."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                left = None if self._at is None else self._at - time.monotonic()
                if left is not None and left <= 0:
                    _end()
                self._changed.wait(left)


def _end() -> NoReturn:
    os._exit(CODE)


def leave(code: int) -> None:
    """End now where a thread that nobody can end would be waited for; else do nothing. Flushes nothing."""
    mine = threading.current_thread()
    if any(thread.is_alive() and not thread.daemon and thread is not mine for thread in threading.enumerate()):
        os._exit(code)
