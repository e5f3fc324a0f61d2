"""The daemon's log: one line each, rotated, never a prompt. The standard logging package costs more than it gives."""

from __future__ import annotations

import os
import time
from pathlib import Path

from shared.system import private
from shared.text.shown import one_line

#: A log is set aside when it grows past this, and this many old ones are kept.
ROTATE_BYTES = 2 * 1024 * 1024
KEPT = 3


class LogFile:
    """Appends lines to `<folder>/<name>.log`. A full or read-only disk silences it; the daemon goes on."""

    def __init__(self, folder: Path, name: str = "modeld") -> None:
        self.path = folder / f"{name}.log"
        self._file: int | None = None
        self._size = 0

    def __call__(self, line: str) -> None:
        """Write one line with its time and pid, whatever the text holds."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime())
        data = f"{stamp} [{os.getpid()}] {one_line(line)}\n".encode()
        try:
            self._write(data)
        except OSError:
            self._file = None

    def _write(self, data: bytes) -> None:
        if self._file is None:
            private.folder(self.path.parent)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._size = os.fstat(self._file).st_size
        if self._size > ROTATE_BYTES:
            self.close()
            rotate(self.path)
            self._write(data)
            return
        self._size += os.write(self._file, data)

    def close(self) -> None:
        """Give the descriptor back; the next line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines, from the log set aside before where this one is short. [] for a log that is not there."""
    lines: list[str] = []
    for each in (path.with_name(f"{path.name}.1"), path):
        try:
            text = each.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        lines += text.removesuffix("\n").split("\n") if text else []  # other separators stand inside of lines
    return lines[-count:] if count > 0 else []


def rotate(path: Path) -> None:
    """`x.log` becomes `x.log.1`, and so on; the oldest goes. Raises OSError."""
    for number in range(KEPT, 0, -1):
        newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
        if newer.exists():
            newer.replace(path.with_name(f"{path.name}.{number}"))


def rotated(path: Path) -> Path:
    """A log that another process appends to: set aside first when it has grown. Raises OSError."""
    private.folder(path.parent)
    if path.exists() and path.stat().st_size > ROTATE_BYTES:
        rotate(path)
    return path
