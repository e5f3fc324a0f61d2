"""Limits on rendering a chat template: a model file is untrusted input, and a sandbox limits no time.

The deadline is kept by the interpreter's own watchdog thread, which needs no interpreter lock: a
template that outlives it ends the process (exit code `exits.TEMPLATE_DEADLINE`), which costs the worker
and nothing else. Memory is limited by the address space where the system can do that (not on Windows,
where the output limit of the sandbox and the deadline have to do).
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: What one render may add to the address space; a long conversation takes a few megabytes.
RENDER_BYTES = 512 * 1024 * 1024


class RenderGuard:
    """One render at a time in this process, each within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Past `seconds` the process ends; past RENDER_BYTES the body gets MemoryError."""
        with self._lock, _address_space(RENDER_BYTES):
            faulthandler.dump_traceback_later(self._seconds, exit=True)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()


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
