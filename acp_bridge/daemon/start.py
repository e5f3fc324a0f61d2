"""Starting and stopping modeld, only ever at the user's explicit word: its own command does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import anyio

from shared.errors import DaemonNotInstalled, DaemonUnreachable

#: `modeld start` returns when the daemon answers; this bounds a start that hangs.
START_LIMIT_S = 30.0
#: `modeld stop` drains the running turn before it cancels it, and waits for every instance.
STOP_LIMIT_S = 60.0


def daemon_command(verb: str) -> list[str]:
    """The command `modeld <verb>`: beside this interpreter first. Raises DaemonNotInstalled."""
    import importlib.util

    if importlib.util.find_spec("modeld") is not None:
        return [sys.executable, "-P", "-m", "modeld", verb]
    found = shutil.which("modeld", path=os.environ.get("PATH"))
    if found is None:
        raise DaemonNotInstalled(hint="install it with `pip install modeld`")
    return [found, verb]


async def start_daemon() -> str:
    """Run `modeld start`; gives what it said. Raises DaemonNotInstalled, DaemonUnreachable with its words."""
    return await _run("start", START_LIMIT_S) or "modeld is running."


async def stop_daemon() -> str:
    """Run `modeld stop`; gives what it said. Raises DaemonNotInstalled, DaemonUnreachable with its words."""
    return await _run("stop", STOP_LIMIT_S) or "modeld stopped."


async def _run(verb: str, limit: float) -> str:
    command = daemon_command(verb)
    with anyio.move_on_after(limit) as scope:
        done = await anyio.run_process(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
        )
    if scope.cancelled_caught:
        raise DaemonUnreachable(hint=f"`modeld {verb}` did not finish within {limit:.0f} s")
    said = (done.stdout or b"").decode(errors="replace").strip()
    if done.returncode != 0:
        failed = (done.stderr or b"").decode(errors="replace").strip()
        raise DaemonUnreachable(hint=f"`modeld {verb}` failed: {failed or said or done.returncode}")
    return said
