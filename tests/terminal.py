"""A command on a pseudo-terminal, its keys typed and its screen read as a person reads it."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Self

import pyte

LONG = 20.0
#: What a terminal answers to the question where its cursor is.
_ASKS_FOR_CURSOR = b"\x1b[6n"


class OnTerminal:
    """Runs `command`; every stream is the terminal, of `columns` by `rows`."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], cwd: Path, *, columns: int = 80, rows: int = 24
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self._said = 0
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        own = {name: value for name, value in environ.items() if name not in ("COLUMNS", "LINES")}  # xdist sets them
        self.process = subprocess.Popen(
            command, env={**own, "TERM": "xterm-256color"}, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True, preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads here
        )  # fmt: skip
        os.close(theirs)

    def type(self, keys: str) -> None:
        """As a person types them; `\\r` is Enter, `\\x03` Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._ours, keys.encode())

    def say(self, keys: str, prompt: str = ">>>") -> None:
        """Type once the prompt is there for the next time: before it, the terminal itself reads the keys."""
        self._said += 1
        self.until(prompt, times=self._said)
        self.type(keys)

    def lines(self) -> list[str]:
        """What stands on the screen and above it, without what is empty at the ends of lines."""
        above = ["".join(row[column].data for column in range(self.screen.columns)) for row in self.screen.history.top]
        return [line.rstrip() for line in [*above, *self.screen.display]]

    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines()).rstrip()

    def until(self, text: str, seconds: float = LONG, *, times: int = 1) -> str:
        """Until `text` has come so many times; gives the screen."""
        deadline = time.monotonic() + seconds
        while self.text().count(text) < times:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in\n{self.text()}"
            assert self._read(left), f"it ended without {text!r}:\n{self.text()}"
        return self.text()

    def end(self, seconds: float = LONG) -> int:
        """Until it ends; gives its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            assert time.monotonic() < deadline, f"it goes on:\n{self.text()}"
        return self.process.wait(seconds)

    def _read(self, seconds: float) -> bool:
        """What comes within `seconds`; false once nothing can come any more."""
        ready, _, _ = select.select([self._ours], [], [], max(seconds, 0))
        if not ready:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False  # the other end has gone
        self.raw += data
        self._stream.feed(data)
        for _ in range(data.count(_ASKS_FOR_CURSOR)):
            cursor = self.screen.cursor
            os.write(self._ours, f"\x1b[{cursor.y + 1};{cursor.x + 1}R".encode())
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)
