"""A spawned `acp-bridge` whatever it speaks: its start, its end, what it wrote to stderr, and the errors it answers.

One thread reads, the test's thread asks and waits, each wait with a deadline.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

EXIT_SECONDS = 20.0  # for a busy machine; the benches tell how long it takes
#: The exit code of a process that had to be killed.
KILLED = -1000

JsonObject = dict[str, Any]


class AnsweredError(Exception):
    """The error that a request was answered with."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(json.dumps(error))
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: JsonObject = error.get("data") or {}

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))


class Child:
    """One process with pipes; `read` runs in a thread until its output ends."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], cwd: Path, *, name: str, group: bool = False
    ) -> None:
        self.stderr = cwd / f"{name}-{time.monotonic_ns()}.stderr"
        self.spawned = time.monotonic()
        self._writing = threading.Lock()
        with self.stderr.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environ),
                cwd=cwd,
                start_new_session=group,
            )
        self._reader = threading.Thread(target=self.read, daemon=True)
        self._reader.start()

    def read(self) -> None:
        """Take what comes, to the end of the output."""
        raise NotImplementedError

    def problems(self) -> list[str]:
        """What was wrong with what it said."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.close()
        if kind is None:
            assert code == 0, f"the bridge ended with {code}: {self.errors()}"
            assert not (problems := self.problems()), "\n".join(problems)

    def write(self, data: bytes) -> None:
        with self._writing:
            assert self.process.stdin is not None
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def close(self) -> int:
        """End of input, as an editor does it; kills what does not end by itself. The exit code."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        return self.wait_end()

    def wait_end(self) -> int:
        """The exit code of a process that was asked to end."""
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = KILLED
        # In a thread: the kernel holds even a killed process whose disk does not answer.
        reaper = threading.Thread(target=self._reap, daemon=True)
        reaper.start()
        reaper.join(EXIT_SECONDS)
        return code

    def _reap(self) -> None:
        """Leave nothing open: a warning of it would fail whichever test runs when the garbage is collected."""
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass

    def kill(self) -> None:
        """As an editor that is closed: no warning."""
        self.process.kill()
        self.wait_end()

    def errors(self) -> str:
        """What the process wrote to stderr."""
        return self.stderr.read_text(errors="replace")
