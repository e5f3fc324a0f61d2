"""Giving one of the user's own files other content, and changing nothing else of it.

A new file moved over the old one is the only way in which a reader never sees half of it, but it is another file: other
names of it (hard links) keep the old content, and what this user cannot give a file is lost (another owner, attributes,
the rights of an access list). So that way is taken where both files are alike in all this, and where not, the old file
is written to in place, as editors do.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import IO

#: Where nothing may be made beside the file, or moved over it (a file that is mounted by itself).
_NOT_BESIDE = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.EROFS})


def replace_content(path: Path, data: bytes, new_mode: int = 0o666) -> None:
    """Give `path` this content; a link stays one. A file that is not there is made with `new_mode` (less the umask).

    Raises OSError, with the old content still there.
    """
    target = Path(os.path.realpath(path))
    try:
        there = target.stat()
    except FileNotFoundError:
        there = None
    part = target.with_name(f".{os.urandom(6).hex()}.part")
    try:
        try:
            _make(part, data, new_mode if there is None else 0o600)
            if there is None or _alike(part, target, there):
                os.replace(part, target)
                return
        except OSError as error:
            if there is None or error.errno not in _NOT_BESIDE:
                raise
    finally:
        part.unlink(missing_ok=True)
    _write_over(target, data)


def _make(part: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(part, flags, mode), "wb") as file:
        _put(file, data)


def _alike(part: Path, target: Path, there: os.stat_result) -> bool:
    """Give `part` the mode of `target`; whether it then is the same but for its content."""
    if sys.platform != "linux" or there.st_nlink > 1:
        return False  # elsewhere Python does not see all that a file has
    part.chmod(there.st_mode & 0o7777)
    made = part.stat()
    same = (made.st_uid, made.st_gid, made.st_mode) == (there.st_uid, there.st_gid, there.st_mode)
    return same and _attributes(part) == _attributes(target)


def _attributes(path: Path) -> dict[str, bytes]:
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def _write_over(target: Path, data: bytes) -> None:
    with target.open("r+b") as file:
        before = file.read()
        try:
            _put(file, data)
        except OSError:
            _put(file, before)
            raise


def _put(file: IO[bytes], data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())
