"""Which folder a data root is, beyond its path: a copy, a backup, and a folder recreated are other ones."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

#: What a path answers once nothing, or something that is not a directory, stands there.
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class PlaceLost(Exception):
    """The folder, or the file in it, is not the one that this ownership made. Says which, in words."""


def name_of(folder: Path) -> str:
    """A folder's device and number in words, the same for every process of one kernel; "" where nobody can say."""
    try:
        return _name(os.stat(folder))
    except OSError:
        return ""


class Place:
    """Folders as they were when an ownership began. They are held open, so that their numbers go to no others.

    Raises OSError.
    """

    def __init__(self, *folders: Path) -> None:
        self._descriptors: list[int] = []
        self._names: dict[Path, str] = {}
        for folder in folders:
            if sys.platform != "win32":  # which opens no folders, and does not give their numbers again
                self._descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                self._names[folder] = _name(os.fstat(self._descriptors[-1]))
            else:
                self._names[folder] = _name(os.stat(folder))

    def check(self) -> None:
        """Raises PlaceLost when another folder, or none, stands in the place; OSError where that cannot be seen."""
        for folder, name in self._names.items():
            try:
                found = _name(os.stat(folder))
            except OSError as error:
                if error.errno in GONE:
                    raise PlaceLost(f"{folder} has been removed") from error
                raise
            if found != name:
                raise PlaceLost(f"{folder} has been replaced")

    def close(self) -> None:
        """Let go of the folders."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __del__(self) -> None:
        self.close()  # one that was left behind keeps no disk from being unmounted


def _name(facts: os.stat_result) -> str:
    return f"{facts.st_dev:x}:{facts.st_ino:x}"
