"""The folder that a file is written in, held on Windows: while it is, nothing above it can be renamed or replaced.

Windows has no calls relative to a folder. But a folder that is open without the right of others to delete it cannot be
moved away, nor can those above it, so its path goes on meaning what it was found to mean. See `parent_folder`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import wintypes
from pathlib import Path

from acp_bridge.tools.paths import Location

if sys.platform != "win32":
    raise ImportError("handles of folders exist on Windows only")

_LIST = 0x1
_SHARE_READ_WRITE = 0x1 | 0x2
_OPEN_EXISTING = 3
_FOLDER_ITSELF = 0x02000000 | 0x00200000  # backup semantics; a reparse point is opened as what it is
_INVALID = wintypes.HANDLE(-1).value


@contextmanager
def parent_folder(place: Location) -> Iterator[tuple[None, str]]:
    """The file by its path, with its folder held and made where it is missing.

    Raises OSError, and ToolFailed where the path leads elsewhere than when it was resolved.
    """
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.CreateFileW.restype = wintypes.HANDLE
    held: list[wintypes.HANDLE] = []
    folder = place.root
    try:
        for step, name in enumerate(["", *place.below[:-1]]):
            folder = folder / name if name else folder
            if step:
                with suppress(FileExistsError):
                    folder.mkdir()
            handle = kernel.CreateFileW(
                str(folder), _LIST, _SHARE_READ_WRITE, None, _OPEN_EXISTING, _FOLDER_ITSELF, None
            )
            if handle in (None, _INVALID):
                raise ctypes.WinError(ctypes.get_last_error())
            held.append(wintypes.HANDLE(handle))
            _require_same(place, folder, root=not step)
        if place.path.is_symlink():
            raise place.moved(place.path.name)
        yield None, str(place.path)
    finally:
        for each in reversed(held):
            kernel.CloseHandle(each)


def _require_same(place: Location, folder: Path, *, root: bool) -> None:
    found = folder.stat()
    if Path(os.path.realpath(folder)) != folder or (root and (found.st_dev, found.st_ino) != place.identity):
        raise place.moved(str(folder))
