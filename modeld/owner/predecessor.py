"""What an owner left behind: its worker is seen gone before the next one loads anything. Blocking."""

from __future__ import annotations

import os
import signal
import sys
import time

from shared.errors import DeviceBusy
from shared.lease import policy
from shared.lease.identity import liveness
from shared.lease.record import Identity, Worker

#: A killed process is gone at once, unless a driver call holds it. Seconds.
KILL_WAIT = 5.0
_POLL = 0.01


def clear(worker: Worker, me: Identity, watchdog: float) -> None:
    """End `worker` and see it gone, or wait out its watchdog where this process cannot see it.

    `watchdog` in seconds. Raises DeviceBusy when a killed worker does not go.
    """
    if policy.death_proven(worker, me, _seen(worker, me)):
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


def evict(owner: Identity, me: Identity) -> bool:
    """End the last owner itself, which has no lease any more, stands still, and keeps the database locked.

    A process stopped in the middle of a transaction holds its lock for as long as it is stopped, and no
    human should have to find it. False where it is not surely that process, or is this one.
    """
    if owner.pid == me.pid or not policy.can_prove(owner, me) or not _is_same(owner):
        return False
    _kill(owner.pid)
    return _gone(owner)


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
