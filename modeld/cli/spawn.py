"""Spawns a daemon of this data root in the background and waits for its first answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from modeld.cli.context import Context
from shared.errors import DaemonUnreachable
from shared.lease import disk
from shared.lease.reader import PresenceView, survey
from shared.paths import config_file
from shared.system import private
from shared.text.shown import one_line

#: From spawn to the first answer, on a cold and loaded disk.
READY_SECONDS = 20.0
_POLL = 0.02


async def launch(context: Context, backend: str | None) -> PresenceView | None:
    """A fresh daemon that answers; None, with its words on stderr, when it does not start. Raises DaemonUnreachable."""
    process, said = _spawn(context, backend)
    deadline = anyio.current_time() + READY_SECONDS
    while anyio.current_time() < deadline:
        if process.poll() is not None:
            if process.returncode == 0:
                break
            text = _tail(said) or _why() or f"exit code {process.returncode}; see `modeld doctor`"
            print(f"modeld: it did not start: {one_line(text)}", file=sys.stderr)
            return None
        mine = await _mine(context, process.pid)
        if mine is not None:
            return mine
        await anyio.sleep(_POLL)
    raise DaemonUnreachable(hint=f"it did not answer within {READY_SECONDS:.0f} s; see `modeld logs`", retryable=True)


def _spawn(context: Context, backend: str | None) -> tuple[subprocess.Popen[bytes], Path]:
    """A process of its own session, with no terminal and no inherited pipe. Raises RootError.

    It lives in another folder: what is relative here is given to it as a whole path.
    """
    said = context.root.logs / "start.log"
    command = [sys.executable, "-P", "-m", "modeld", "serve", "--quiet"]
    command += ["--backend", backend] if backend else []
    environ = {**os.environ, "MODELD_DATA_ROOT": str(context.root.path), "MODELD_CONFIG": str(config_file())}
    if "MODELD_MODEL_FOLDERS" in environ:
        environ["MODELD_MODEL_FOLDERS"] = os.pathsep.join(context.settings.model_folders)
    try:
        private.folder(said.parent)
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        disk.explain(error, said.parent)
    try:
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                creationflags=flags,
                env=environ,
                cwd=Path.home(),
            )
        else:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environ,
                cwd="/",
            )
    finally:
        os.close(output)
    return process, said


async def _mine(context: Context, pid: int) -> PresenceView | None:
    found = await anyio.to_thread.run_sync(survey, context.root)
    return next((view for view in found.living if view.pid == pid), None)


def _why() -> str:
    """What the doctor sees wrong with the environment, where the process could not even say it (a full disk)."""
    from modeld.doctor import environment

    wrong = [one for one in environment.root()[1] if one.verdict == "problem"]
    return "; ".join(f"{one.what} {one.text}: {one.fix}" for one in wrong)


def _tail(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    words = [line.strip(" |+-") for line in lines]  # the border of an exception group says nothing
    return next((line.removeprefix("modeld: ") for line in reversed(words) if line), "")
