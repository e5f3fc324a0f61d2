"""`modeld logs`: the end of the daemon's log, or of what the engine printed; and what comes after it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from modeld.cli.context import Context
from modeld.log.logfile import last_lines
from modeld.log.logline import parsed
from shared import codes

#: How often a followed log is looked at. Seconds.
LOOK_SECONDS = 0.25


def main(options: argparse.Namespace) -> int:
    """Works with the daemon stopped; follows through its rotation and its restarts."""
    path = Context().root.logs / ("worker.log" if options.worker else "modeld.log")
    follower = Follower(path) if options.follow else None  # before the end is read: nothing in between is lost
    lines = last_lines(path, options.n)
    if not lines and not path.exists():
        print(f"modeld: no log yet at {path}", file=sys.stderr)
    for line in lines:
        _show(line, as_json=options.json)
    if follower is None:
        return codes.OK
    try:
        for line in follower.lines(time.sleep):
            _show(line, as_json=options.json)
    finally:
        follower.close()
    return codes.OK


def _show(line: str, *, as_json: bool) -> None:
    print(json.dumps(parsed(line), ensure_ascii=False) if as_json else line, flush=True)


class Follower:
    """New lines of a file that grows, is set aside and starts over. Starts at its present end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = self._open()
        if self._stream is not None:
            self._stream.seek(0, os.SEEK_END)
        self._rest = b""

    def lines(self, pause: Callable[[float], None]) -> Iterator[str]:
        """For ever; `pause` is called between two looks."""
        while True:
            yield from self.new()
            pause(LOOK_SECONDS)

    def new(self) -> Iterator[str]:
        """What came since the last look, whole lines only."""
        yield from self._read()
        if self._replaced():
            yield from self._read()  # the last words of the file that was set aside
            self.close()
            self._stream, self._rest = self._open(), b""
            yield from self._read()

    def close(self) -> None:
        """Give the file back."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self) -> BinaryIO | None:
        try:
            return self._path.open("rb")
        except OSError:
            return None

    def _read(self) -> Iterator[str]:
        if self._stream is None:
            return
        *whole, self._rest = (self._rest + self._stream.read()).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")

    def _replaced(self) -> bool:
        try:
            facts = os.stat(self._path)
        except OSError:
            return False
        if self._stream is None:
            return True
        mine = os.fstat(self._stream.fileno())
        return (facts.st_ino, facts.st_dev) != (mine.st_ino, mine.st_dev) or facts.st_size < self._stream.tell()
