"""Giving one of the user's own files other content, and changing nothing else of it.

A new file moved over the old one is the only way in which a reader never sees half of it, but it is another file: other
names of it (hard links) keep the old content, and what this user cannot give a file is lost (another owner, attributes,
the rights of an access list). So that way is taken where both files are alike in all this, and where not, the old file
is written to in place, as editors do.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

#: Where nothing may be made beside the file, or moved over it (a file that is mounted by itself).
_NOT_BESIDE = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.EROFS})
#: A link in the place of the file is not followed. Windows has no such flag.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def replace_content(path: Path, data: bytes, new_mode: int = 0o666) -> None:
    """Give `path` this content; a link stays one. A file that is not there is made with `new_mode` (less the umask).

    Raises OSError, with the old content still there.
    """
    replace_content_in(None, os.path.realpath(path), data, new_mode)


def replace_content_in(folder: int | None, name: str, data: bytes, new_mode: int = 0o666) -> None:
    """The same for `name` in an open folder (None: `name` is a path). A link or folder of that name is refused.

    Raises OSError, with the old content still there.
    """
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        there = None
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(there.st_mode) else errno.ELOOP, "not a regular file", name)
    part = os.path.join(os.path.dirname(name), f".{os.urandom(6).hex()}.part")
    try:
        try:
            alike = (
                _make(folder, part, data, new_mode) if there is None else _make_like(folder, part, name, there, data)
            )
            if alike:
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
                return
        except OSError as error:
            if there is None or error.errno not in _NOT_BESIDE:
                raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
    assert there is not None, "what is recreated is moved, or the error is raised"
    _write_over(folder, name, there, data)


def _make(folder: int | None, part: str, data: bytes, mode: int) -> bool:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _AS_IT_IS
    with os.fdopen(os.open(part, flags, mode, dir_fd=folder), "wb") as file:
        _put(file, data)
    return True


def _make_like(folder: int | None, part: str, name: str, there: os.stat_result, data: bytes) -> bool:
    """Make `part`, with the mode of `name`; whether it then is the same but for its content."""
    _make(folder, part, data, 0o600)
    if sys.platform != "linux" or there.st_nlink > 1:
        return False  # elsewhere Python does not see all that a file has
    with _opened(folder, part, os.O_RDONLY) as file, _opened(folder, name, os.O_RDONLY) as was:
        os.fchmod(file.fileno(), there.st_mode & 0o7777)
        made = os.fstat(file.fileno())
        same = (made.st_uid, made.st_gid, made.st_mode) == (there.st_uid, there.st_gid, there.st_mode)
        return same and _attributes(file.fileno()) == _attributes(was.fileno())


def _opened(folder: int | None, name: str, flags: int) -> IO[bytes]:
    file = os.open(name, flags | _AS_IT_IS, dir_fd=folder)
    return os.fdopen(file, "r+b" if flags & os.O_RDWR else "rb")


def _attributes(file: int) -> dict[str, bytes]:
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def _write_over(folder: int | None, name: str, there: os.stat_result, data: bytes) -> None:
    with _opened(folder, name, os.O_RDWR) as file:
        if not os.path.samestat(os.fstat(file.fileno()), there):
            raise OSError(errno.ELOOP, "another file by now", name)
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
