"""The end of another process, reported by the kernel: a standby need not ask for it again and again.

Linux only (pidfd). Elsewhere, and for a process that this one cannot see, `follow` says no and the caller polls.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from shared.lease import policy
from shared.lease.process.identity import same_process
from shared.lease.record import Identity


class DeathWatch:
    """Follows one process at a time. `on_exit` is called on the event loop when it has ended, at most once for each."""

    def __init__(self, me: Identity, on_exit: Callable[[], None]) -> None:
        self._me = me
        self._on_exit = on_exit
        self._followed: Identity | None = None
        self._descriptor = -1

    def follow(self, process: Identity | None) -> bool:
        """Follow `process` from now on (None: nobody); whether its end will be reported. On the event loop."""
        if process is not None and process == self._followed:
            return True
        self.close()
        if process is None or not policy.can_prove(process, self._me):
            return False
        self._descriptor = _open(process)
        if self._descriptor < 0:
            return False
        self._followed = process
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)
        return True

    def _ended(self) -> None:
        self.close()
        self._on_exit()

    def close(self) -> None:
        """Follow nobody."""
        descriptor, self._descriptor, self._followed = self._descriptor, -1, None
        if descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)


def _open(process: Identity) -> int:
    """A descriptor that becomes readable at the end of that very process, or -1."""
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return -1
    try:
        descriptor: int = opener(process.pid)
    except OSError:
        return -1  # gone already, or a kernel that cannot: the look decides
    # compared after it was opened: from here on the number cannot be another process's
    if not same_process(process.pid, process.start_token):
        os.close(descriptor)
        return -1
    return descriptor
