"""One pull of one file at a time, over all processes of the machine.

A kernel lock on `.NAME.lock` in the store: it goes with its holder, also after a kill. (The owner
lease takes no kernel locks because it must survive a frozen holder being replaced; a frozen pull needs
no successor, the user can wait or cancel.) The store is on a local disk, which the data root's check
makes sure of.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

POLL = 0.1


@contextlib.contextmanager
def exclusive(path: Path, waiting: Callable[[], None], pause: Callable[[float], None]) -> Iterator[bool]:
    """Hold the lock at `path`; yields whether somebody else held it before.

    While it is held elsewhere, `waiting` is called every 0.1 s: it may raise to give up. Raises OSError.
    """
    waited = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not _try_lock(descriptor):
                waited = True
                waiting()
                pause(POLL)
            if _is_current(descriptor, path):
                break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the last holder removed the file after we opened it
    try:
        yield waited
    finally:
        if os.name != "nt":
            with contextlib.suppress(OSError):
                os.unlink(path)  # while still held, so that nobody locks a name that is about to go
        os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
