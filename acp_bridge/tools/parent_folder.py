"""The folder that a file is written in, held open on POSIX, so that nothing can put a link in its way meanwhile.

A path is checked when a person is asked, and written when they have answered. Between the two a folder on the way may
have become a link to somewhere else. So the folders are opened one below the other, none of them by a link, and the
file is made by its name in the last one. On Windows see `parent_folder_windows`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from acp_bridge.tools.paths import Location

if sys.platform == "win32":
    raise ImportError("Windows has no calls relative to a folder")

#: O_PATH needs no right to list the folder. macOS has none.
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@contextmanager
def parent_folder(place: Location) -> Iterator[tuple[int, str]]:
    """The open folder of the file, made where it is missing, and the file's name in it.

    Raises OSError, and ToolFailed where the path leads elsewhere than when it was resolved.
    """
    *folders, name = place.below
    folder = os.open(place.root, _FOLDER)
    try:
        found = os.fstat(folder)
        if (found.st_dev, found.st_ino) != place.identity:
            raise place.moved(str(place.root))
        for each in folders:
            below = _entered(folder, each, place)
            os.close(folder)
            folder = below
        if _is_link(folder, name):
            raise place.moved(name)
        yield folder, name
    finally:
        os.close(folder)


def _entered(folder: int, name: str, place: Location) -> int:
    try:
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                pass  # made meanwhile: opened as what it is
            return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(folder, name):
            raise place.moved(name) from error
        raise


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
