"""Children that never outlive the bridge, however it ends, with everything they started.

An editor kills its agents without a word, and a killed process can end nobody. So on POSIX each child is led by one
more process, the reaper, which ends it with all it started when a line that only the bridge holds has ended. On Windows
the child is in a job that the system ends with the bridge's handle.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

#: By its path, and without the packages that it needs none of: it starts in some 20 ms.
REAPER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("child_reaper.py")))
#: More than an exit code has characters.
_CODE_BYTES = 16


class ChildProcess:
    """For one child. `end` it when the child is no longer wanted; safe to call again."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._line: socket.socket | None = None
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
        """Start the child, its output in a pipe. Raises OSError when the program cannot be run.

        The streams are the child's. The process is whatever holds it: it has ended when everything has.
        """
        import anyio

        found = find(program, cwd, (environ or os.environ).get("PATH"))
        if sys.platform == "win32":
            self._process = await anyio.open_process(
                [found, *arguments],
                cwd=cwd,
                env=environ,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW,
            )
            self._hold_in_job()
            return self._process
        self._line, theirs = socket.socketpair()
        try:
            self._process = await anyio.open_process(
                [*REAPER, str(theirs.fileno()), found, *arguments],
                cwd=cwd,
                env=environ,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            self.end()
            raise
        finally:
            theirs.close()
        return self._process

    def _hold_in_job(self) -> None:
        if sys.platform == "win32" and self._process is not None:
            from shared.system.winjob import Job

            try:
                self._job = Job(self._process.pid)
            except OSError:
                self._job = None  # it had ended already, or may not be held: taskkill has to do

    async def wait(self) -> int | None:
        """Once, until the child itself has ended, whatever it left running; its exit code, None for a signal."""
        import anyio

        if sys.platform == "win32":
            assert self._process is not None
            return await self._process.wait()
        assert self._line is not None
        await anyio.wait_readable(self._line)
        code = self._line.recv(_CODE_BYTES)
        return int(code) if code and not code.startswith(b"-") else None

    def end(self) -> None:
        """End the child with everything it started; that it has is reported by the process."""
        if sys.platform == "win32":
            if self._process is not None and self._job is None:
                pid = str(self._process.pid)
                subprocess.run(["taskkill", "/F", "/T", "/PID", pid], capture_output=True, check=False)
            if self._job is not None:
                self._job.close()
            self._process = self._job = None
            return
        if self._line is not None:
            self._line.close()
        self._line = None


def find(program: str, cwd: str, path: str | None) -> str:
    """The file that `program` names, looked for as a shell would, but a bare name in PATH alone, also on Windows.

    Raises FileNotFoundError, PermissionError.
    """
    if os.path.dirname(program):
        there = Path(cwd) / program
        if not there.exists():
            raise FileNotFoundError(2, os.strerror(2), program)
        if not os.access(there, os.X_OK) or there.is_dir():
            raise PermissionError(13, os.strerror(13), program)
        return str(there)
    found = on_path(program, path)
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), program)
    return found


def on_path(program: str, path: str | None) -> str | None:
    """The file that a bare name means. Windows' own search, and Python's there, begin in the current folder: in the
    workspace, where a file of that name may have been put.
    """
    if sys.platform != "win32":
        return shutil.which(program, path=path)
    ends = ["", *os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";")]
    folders = (folder for folder in (path or os.environ.get("PATH", "")).split(os.pathsep) if os.path.isabs(folder))
    files = (
        os.path.join(folder, program + end) for folder in folders for end in ends if os.path.splitext(program + end)[1]
    )
    return next(filter(os.path.isfile, files), None)
