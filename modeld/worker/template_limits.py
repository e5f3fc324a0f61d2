"""Limits on rendering a chat template: a model file is untrusted input, and a sandbox limits no time.

The deadline counts the rendering thread's own processor time, since on a busy machine a good template may
wait long for its turn; a thread beside it looks. What holds the interpreter's lock all the while (one huge
operation) is ended by the interpreter's own watchdog, which needs no lock and knows the clock on the wall
alone: it waits `WALL` times as long. Either way a template that outlives it ends the process (exit code
`exits.TEMPLATE_DEADLINE`), which costs the worker and nothing else. Memory is limited by the address space where
the system can do that (not on Windows, where the output limit of the sandbox and the deadline have to do).
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from modeld.pipe import exits

#: What one render may add to the address space; a long conversation takes a few megabytes.
RENDER_BYTES = 512 * 1024 * 1024
#: Seconds on the wall for each second of processor time. Where a thread's time is not to be had: 1.
WALL = 5 if sys.platform == "linux" else 1
#: Between two looks at a thread that waits for the processor.
_LEAST_WAIT = 0.02


class RenderGuard:
    """One render at a time in this process, each within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Past `seconds` the process ends; past RENDER_BYTES the body gets MemoryError."""
        with self._lock, _address_space(RENDER_BYTES):
            faulthandler.dump_traceback_later(WALL * self._seconds, exit=True)
            done = threading.Event()
            try:
                _watch(self._seconds, done)
                yield
            finally:
                done.set()
                faulthandler.cancel_dump_traceback_later()


if sys.platform == "linux":

    def _watch(seconds: float, done: threading.Event) -> None:
        """End the process when this thread has computed for `seconds` more; nothing once it is `done`."""
        clock = time.pthread_getcpuclockid(threading.get_ident())
        until = time.clock_gettime(clock) + seconds

        def look() -> None:
            while not done.wait(max(until - time.clock_gettime(clock), _LEAST_WAIT)):
                if time.clock_gettime(clock) >= until:
                    os._exit(exits.TEMPLATE_DEADLINE)

        try:
            threading.Thread(target=look, name="template deadline", daemon=True).start()
        except RuntimeError:  # no thread can be had: the interpreter's own watchdog has to do
            return

else:

    def _watch(seconds: float, done: threading.Event) -> None:
        """The watchdog of the interpreter has to do."""


if sys.platform == "win32":

    @contextmanager
    def _address_space(extra: int) -> Iterator[None]:
        yield

else:

    @contextmanager
    def _address_space(extra: int) -> Iterator[None]:
        import resource

        used = _virtual_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if used is None:
            yield
            return
        wanted = used + extra
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        if soft != resource.RLIM_INFINITY:
            wanted = min(wanted, soft)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _virtual_bytes() -> int | None:
        """Bytes of address space in use; None where the system does not tell (macOS)."""
        import resource

        try:
            with open("/proc/self/statm", "rb") as file:
                return int(file.read().split()[0]) * resource.getpagesize()
        except OSError:
            return None
