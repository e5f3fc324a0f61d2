"""The owner's heartbeat to its worker, in a thread that nothing blocks, as the renewal of the lease has one.

A loop that has much to do, on a machine that gives it little, may not come to its timers for seconds; the owner lives
and its lease is good, so its model must not be lost for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Heart:
    """Calls `beat` every `pause` seconds until it is cancelled. `beat` is called from this thread alone."""

    def __init__(self, beat: Callable[[], None], pause: float) -> None:
        self._beat = beat
        self._pause = pause
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="heart", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause):
            self._beat()

    def cancel(self) -> None:
        """No further beat begins. Does not wait; safe to call again."""
        self._stopped.set()
