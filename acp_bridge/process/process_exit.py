"""Ends the bridge process on signals, and when its editor died without closing the pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import anyio
import anyio.to_thread

#: What editors put between themselves and an agent.
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "nu", "cmd", "powershell", "pwsh")
LAUNCHERS = ("env", "uv", "uvx", "pipx", "npx")
#: How often a parent is looked for where nothing can tell; each look wakes an idle process.
PARENT_CHECK_S = 15.0
#: An editor expects the process to be gone a second after it closed the pipe.
STUCK_S = 0.9


def end_when_stuck(loop: asyncio.AbstractEventLoop) -> None:
    """Watch over the end of a process whose editor has gone: blocks until `loop` is closed, or ends the process.

    In a thread of its own. A loop that runs ends by itself, in bounded steps; one that hangs in a look at a disk that
    does not answer would never hear of it.
    """
    while True:
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return
        if not answered.wait(STUCK_S):
            os._exit(0)
        time.sleep(STUCK_S / 4)


async def stop_at_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first signal that asks this process to end."""
    if sys.platform == "win32":
        return  # there are no signals to wait for; the editor closes the pipe or ends the process
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            stop()
            return


async def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call `stop` when the parent is gone: a killed editor may leave its end of the pipe to another process.

    Editors spawn through a shell, which outlives them where it waits for us: so a shell's parent counts too.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        editor = parent_of_shell(parent)  # at once, while it is surely there: two reads of a file in memory
    else:
        editor = await anyio.to_thread.run_sync(parent_of_shell, parent, abandon_on_cancel=True)
    async with anyio.create_task_group() as group:
        for watched in {parent, editor} - {0, 1}:
            group.start_soon(_watch, watched, stop)


async def _watch(pid: int, stop: Callable[[], None]) -> None:
    if await _ended_by_kernel_event(pid):
        stop()
    else:
        await stop_with_process(pid, stop)


def parent_of_shell(pid: int) -> int:
    """The parent of the process `pid` when that is a shell or a launcher that only waits, else 0."""
    try:
        name, parent = _name_and_parent(pid)
    except (OSError, ValueError, IndexError):
        return 0  # gone, or not to be seen
    return parent if name.lower().removesuffix(".exe").lstrip("-") in (*SHELLS, *LAUNCHERS) else 0


def _name_and_parent(pid: int) -> tuple[str, int]:
    if sys.platform == "linux":
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, _, rest = file.read().rpartition(")")
        return head.partition("(")[2], int(rest.split()[1])
    import psutil

    try:
        process = psutil.Process(pid)
        return process.name(), process.ppid()
    except psutil.Error as error:
        raise ProcessLookupError from error


async def stop_with_process(pid: int, stop: Callable[[], None]) -> None:
    """Call `stop` when the process `pid`, which an editor named as itself, has ended.

    Returns at once when there is no such process here: the editor may count its pids in another namespace.
    """
    from shared.lease.process import identity

    token = await anyio.to_thread.run_sync(identity.start_token, pid, abandon_on_cancel=True)
    if not token:
        return
    if sys.platform == "linux" and await _ended_by_kernel_event(pid):
        stop()
        return
    while True:
        await anyio.sleep(PARENT_CHECK_S)
        if not await anyio.to_thread.run_sync(identity.same_process, pid, token, abandon_on_cancel=True):
            stop()
            return


async def _ended_by_kernel_event(pid: int) -> bool:
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
