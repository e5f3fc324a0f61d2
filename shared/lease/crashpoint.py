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
