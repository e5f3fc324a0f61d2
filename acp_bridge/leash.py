"""Children that never outlive the bridge, however it ends, with everything they started.

An editor kills its agents without a word, and a killed process can end nobody. So on POSIX each child leads a process
group of its own in which one more process waits on a pipe that only the bridge holds open: when the bridge is gone the
pipe ends, and the group is killed. On Windows the child is in a job that the system ends with the bridge's handle.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

#: Waits in the child's group, but as nobody's child that the command could meet in its own waits.
#: Where the pipe cannot be opened by that name, it does not watch.
_WATCH = """
leash=$1; shift
( ( exec 9<"/dev/fd/$leash" || exit 0; read -r _ <&9; kill -KILL 0 ) >/dev/null 2>&1 & )
exec "$@"
"""


class Leash:
    """For one child. `end` it when the child is no longer wanted; safe to call again."""

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = None
        self._pid = 0
        self._job: Any = None

    async def spawn(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        cwd: str,
        stdin: int,
        stderr: int | None,
        environ: Mapping[str, str] | None = None,
    ) -> Process:
        """Start the child, its output in a pipe. Raises OSError when the program cannot be run."""
        import anyio

        found = find(program, cwd, (environ or os.environ).get("PATH"))
        if sys.platform == "win32":
            process = await anyio.open_process(
                [found, *arguments],
                cwd=cwd,
                env=environ,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW,
            )
            self._pid = process.pid
            self._hold_in_job()
            return process
        reading, writing = self._ends = os.pipe()
        try:
            process = await anyio.open_process(
                ["/bin/sh", "-c", _WATCH, "sh", str(reading), found, *arguments],
                cwd=cwd,
                env=environ,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=(reading,),
                start_new_session=True,
            )
        except BaseException:
            self.end()
            raise
        os.close(reading)
        self._ends = (-1, writing)
        self._pid = process.pid
        return process

    def _hold_in_job(self) -> None:
        if sys.platform == "win32":
            from shared.winjob import Job

            try:
                self._job = Job(self._pid)
            except OSError:
                self._job = None  # it had ended already, or may not be held: taskkill has to do

    def end(self) -> None:
        """End the child with everything it started, at once."""
        if sys.platform == "win32":
            if self._pid and self._job is None:
                subprocess.run(["taskkill", "/F", "/T", "/PID", str(self._pid)], capture_output=True, check=False)
            if self._job is not None:
                self._job.close()
            self._pid, self._job = 0, None
            return
        pid, self._pid = self._pid, 0
        if pid:
            try:
                os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # all of it has ended (macOS says the latter of a group of zombies)
        ends, self._ends = self._ends, None
        for descriptor in ends or ():
            if descriptor >= 0:
                os.close(descriptor)


def find(program: str, cwd: str, path: str | None) -> str:
    """The file that `program` names, looked for as a shell would. Raises FileNotFoundError, PermissionError."""
    if os.path.dirname(program):
        there = Path(cwd) / program
        if not there.exists():
            raise FileNotFoundError(2, os.strerror(2), program)
        if not os.access(there, os.X_OK) or there.is_dir():
            raise PermissionError(13, os.strerror(13), program)
        return str(there)
    found = shutil.which(program, path=path)
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), program)
    return found
