"""What an owner left behind: its worker is seen gone before the next one loads anything. Blocking."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from shared.errors import DeviceBusy
from shared.lease import policy
from shared.lease.process.identity import booted, liveness
from shared.lease.record import Identity, Worker

#: A killed process is gone at once, unless a driver call holds it. Seconds.
KILL_WAIT = 5.0
_POLL = 0.01


def clear(worker: Worker, me: Identity, watchdog: float, seen: float = 0.0) -> None:
    """End `worker` and see it gone, or wait out its watchdog where this process cannot see it.

    `watchdog` in seconds; `seen`: wall second at which its owner wrote last. Raises DeviceBusy when a killed worker
    does not go.
    """
    if policy.death_proven(worker, me, _seen(worker, me), seen=seen, booted=booted()):
        return
    if not policy.can_prove(worker, me) or worker.pid == 0:
        time.sleep(watchdog)
        return
    if not _is_same(worker):  # seen, but its start cannot be read: never kill on a guess
        time.sleep(watchdog)
        return
    _kill(worker.pid)
    if not _gone(worker):
        raise DeviceBusy(holder=f"the last owner's worker (pid {worker.pid}), which does not end")


def evict(owner: Identity, me: Identity, database: Path) -> bool:
    """End the last owner itself, whose lease was seen to stand still, where it is the one that locks `database`.

    A process stopped in the middle of a transaction holds its lock for as long as it is stopped, and no
    human should have to find it. False where it is not surely that process, is this one, or holds no lock there.
    """
    if owner.pid == me.pid or not policy.can_prove(owner, me) or not _is_same(owner):
        return False
    if not _locks(owner.pid, database):
        return False
    _kill(owner.pid)
    return _gone(owner)


def _locks(pid: int, database: Path) -> bool:
    """Whether that process holds a lock on the database or its journal. Only Linux tells; elsewhere: no."""
    numbers = set()
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            numbers.add(str(os.stat(f"{database}{suffix}", follow_symlinks=False).st_ino))
        except OSError:
            continue  # that one is not in use
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    # "1: POSIX  ADVISORY  WRITE 4711 08:01:123456 124 124": a waiter's line has "->" behind its number
    held = [words for words in lines if len(words) > 5 and words[1] != "->"]
    return any(words[4] == str(pid) and words[5].rpartition(":")[2] in numbers for words in held)


def _gone(process: Identity) -> bool:
    deadline = time.monotonic() + KILL_WAIT
    while time.monotonic() < deadline:
        if liveness(process.pid, process.start_token) == "gone":
            return True
        time.sleep(_POLL)
    return False


def _seen(worker: Worker, me: Identity) -> policy.Liveness:
    return liveness(worker.pid, worker.start_token) if policy.can_prove(worker, me) else "unknown"


def _is_same(process: Identity) -> bool:
    return liveness(process.pid, process.start_token) == "alive"


def _kill(pid: int) -> None:
    try:
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)  # terminates at once there
        else:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise DeviceBusy(holder=f"the last owner's worker (pid {pid}) of another user") from error
