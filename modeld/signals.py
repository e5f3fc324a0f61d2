"""How the system asks a daemon to end, and that it asks in vain while the process goes down."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

from shared.diagnosis.threads import poster

#: Each signal with the reason that it gives. A closed terminal (SIGHUP) does not end a daemon, and Ctrl-Z (SIGTSTP)
#: does not stop it: it would hold the model, and answer nobody.
if sys.platform == "win32":
    _REASONS = {signal.SIGBREAK: "shutdown", signal.SIGINT: "stop"}
else:
    _REASONS = {signal.SIGTERM: "shutdown", signal.SIGINT: "stop"}
    _IGNORED = (signal.SIGHUP, signal.SIGTSTP)


def watch(end: Callable[[str], None], asked: Callable[[], None]) -> None:
    """Call `end` on the running loop, with the reason, at each signal, and `asked` before that in a thread.

    Where the loop hangs in a look at a disk that does not answer, no handler of its thread ever runs: so another one
    waits for the signals, and `asked` is what bounds the end.
    """
    post = poster()
    if sys.platform == "win32":
        for number, reason in _REASONS.items():
            signal.signal(number, lambda *_, reason=reason: post(end, reason))
    else:
        for ignored in _IGNORED:  # also in the workers, which take it over
            signal.signal(ignored, signal.SIG_IGN)
        block()
        threading.Thread(target=_wait, args=(post, end, asked), name="signals", daemon=True).start()


def _wait(post: Callable[..., None], end: Callable[[str], None], asked: Callable[[], None]) -> None:
    if sys.platform == "win32":
        return
    while True:
        reason = _REASONS[signal.Signals(signal.sigwait(_REASONS))]
        asked()
        post(end, reason)


def block() -> None:
    """Keep them for `watch`; before any thread is there, each of which would take them over."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, _REASONS)


def ignore() -> None:
    """From now on. What has ended in order must not end by a signal after all: an interpreter takes its time to go
    down.
    """
    for number in _REASONS:
        signal.signal(number, signal.SIG_IGN)
