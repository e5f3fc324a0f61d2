"""How the system asks a daemon to end, and that it asks in vain while the process goes down."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

#: Each signal with the reason that it gives. A closed terminal (SIGHUP) does not end a daemon, and Ctrl-Z (SIGTSTP)
#: does not stop it: it would hold the model, and answer nobody.
if sys.platform == "win32":
    _REASONS = {signal.SIGBREAK: "shutdown", signal.SIGINT: "stop"}
else:
    _REASONS = {signal.SIGTERM: "shutdown", signal.SIGINT: "stop"}
    _IGNORED = (signal.SIGHUP, signal.SIGTSTP)


def watch(end: Callable[[str], None]) -> None:
    """Call `end` on the running loop, with the reason, at each signal."""
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":
        for ignored in _IGNORED:  # also in the workers, which take it over
            signal.signal(ignored, signal.SIG_IGN)
    for number, reason in _REASONS.items():
        if sys.platform == "win32":
            signal.signal(number, lambda *_, reason=reason: loop.call_soon_threadsafe(end, reason))
        else:
            loop.add_signal_handler(number, end, reason)


def ignore() -> None:
    """From now on; to be called on the loop. What has ended in order must not end by a signal after all: the loop's
    handlers go with the loop, and an interpreter takes its time to go down.
    """
    loop = asyncio.get_running_loop()
    for number in _REASONS:
        if sys.platform != "win32":
            loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
