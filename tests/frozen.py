"""A process that hangs, as the tests make one."""

from __future__ import annotations

import os
import signal
import time

import psutil

SECONDS = 10.0


def freeze(pid: int) -> None:
    """Stop the process; on a busy machine its threads go on for a while behind the signal, and this waits for them."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + SECONDS
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline, f"{pid} does not stop"
        time.sleep(0.001)
