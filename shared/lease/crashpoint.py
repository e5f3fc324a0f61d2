"""Named places where a test can stop or end a process: the sweep over every crash window.

`MODELD_CRASH_POINT=<label>[:kill|stop|term]` makes the process end itself there (`kill`, the
default), freeze (`stop`) or receive the polite signal (`term`), once. Without the variable a point
costs one look-up. The lease has these labels, in the order an ownership meets them:

    acquire.judged     the last owner counts as gone, nothing is written
    acquire.created    the epoch's file exists, nothing is confirmed
    acquire.confirmed  the lease is ours, the record does not say so yet
    worker.named       the lease names the worker
    renew.before       a renewal is due
    renew.written      the renewal is written, its listing is to come
    release.before     about to let go
    release.written    the release is on disk

and the owner's work has these, in the order of a load, a turn and an unload:

    load.asked         the lease is confirmed, nothing has begun
    slot.generation    a generation was raised, its record is on its way to the store
    load.spawned       the worker runs and nobody has named it
    load.allowed       the worker is named, its devices are held
    sent.load          the worker has its load
    load.running       the first sign of progress
    load.loaded        the model is resident, the slot does not know
    load.ready         the slot knows
    turn.confirmed     the lease is confirmed for a turn
    turn.started       the turn holds the slot
    sent.turn          the worker has the turn
    turn.event         the first of its events
    turn.done          the worker has ended it, the slot does not know
    turn.ended         the slot knows, its client does not
    unload.closing     the worker is to end
    unload.closed      it has ended, the slot does not know
"""

from __future__ import annotations

import os
import signal
import sys
import threading

VARIABLE = "MODELD_CRASH_POINT"


def crash_point(label: str) -> None:
    """End or freeze this process if the environment says so for `label`; at most once in a process."""
    wanted = os.environ.get(VARIABLE)
    if not wanted or wanted.partition(":")[0] != label:
        return
    del os.environ[VARIABLE]
    _act(wanted.partition(":")[2] or "kill")


def _act(how: str) -> None:
    if sys.platform == "win32":  # no stopping there, and ending is the only signal
        os._exit(137)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        # to this thread: sent to the process it may reach another one first, and this one would go on a little
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif how == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        raise ValueError(f"{VARIABLE}: {how} is none of kill, stop, term")
