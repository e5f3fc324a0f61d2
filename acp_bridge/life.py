"""When a bridge process ends besides the end of its pipe: signals, and an editor that is gone without closing it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import anyio
import anyio.to_thread

#: How often a parent is looked for where nothing can tell; each look wakes an idle process.
PARENT_CHECK_S = 15.0


async def stop_at_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first signal that asks this process to end."""
    if sys.platform == "win32":
        return  # there are no signals to wait for; the editor closes the pipe or ends the process
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            stop()
            return


async def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call `stop` when the parent is gone: a killed editor may leave its end of the pipe to another process."""
    parent = os.getppid()
    while True:
        await anyio.sleep(PARENT_CHECK_S)
        if os.getppid() != parent:
            stop()
            return


async def stop_with_process(pid: int, stop: Callable[[], None]) -> None:
    """Call `stop` when the process `pid`, which an editor named as itself, has ended.

    Returns at once when there is no such process here: the editor may count its pids in another namespace.
    """
    from shared.lease import identity

    token = await anyio.to_thread.run_sync(identity.start_token, pid)
    if not token:
        return
    if sys.platform == "linux" and await _told_by_kernel(pid):
        stop()
        return
    while True:
        await anyio.sleep(PARENT_CHECK_S)
        if not await anyio.to_thread.run_sync(identity.same_process, pid, token):
            stop()
            return


async def _told_by_kernel(pid: int) -> bool:
    """Wait for the end of `pid` without looking again and again. False where the kernel does not offer it."""
    if sys.platform != "linux":
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    return True
