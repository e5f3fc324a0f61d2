"""The one rule for files under the data root: readable by their owner alone, from their first byte on."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

MAX_TRIES = 6
#: Never waits for a writer of a FIFO or a modem, follows no link, and no child inherits it.
_LOOK = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
#: What the system says of a link where none may be, of a socket, of a FIFO without a reader.
_ODD = frozenset({errno.ELOOP, errno.ENXIO, errno.EMLINK})


class NotRegular(OSError):
    """A folder, link, FIFO or device stands where a regular file has to be."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def is_odd(path: Path) -> bool:
    """Whether something else than a regular file stands there: a folder, link, FIFO or device. Raises OSError."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def read(path: Path, most: int) -> bytes:
    """The first `most` bytes of a regular file: whatever stands there under its name, it is not waited for.

    Raises NotRegular, FileNotFoundError, OSError.
    """
    try:
        descriptor = os.open(path, _LOOK)
    except OSError as error:
        if error.errno in _ODD:
            raise NotRegular(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegular(path)
        parts, left = [], most
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def folder(path: Path) -> None:
    """Make a folder of ours where it is missing, with those above it that are: all for their owner alone.

    (`mkdir(parents=True)` gives its mode to the last one only.) Raises OSError.
    """
    if path.parent != path and not path.parent.exists():
        folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def narrow(path: Path) -> bool:
    """Take from others the right to write into a folder of ours, who could exchange what we trust there; whether that
    holds now. That they may look stays as it is: the folder may be one that its user shares, and every file of ours
    in it is private by itself. Raises OSError. Windows has no modes: true.
    """
    if sys.platform == "win32":
        return True
    facts = path.stat()
    open_to_others = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not open_to_others:
        return True
    if facts.st_uid != os.geteuid() or facts.st_mode & stat.S_ISVTX:
        return False  # another's, or a place for all like /tmp, which would be broken for them
    path.chmod(stat.S_IMODE(facts.st_mode) & ~open_to_others)
    return True


def opener(path: str, flags: int) -> int:
    """For `open(..., opener=opener)`: a file that is made by it is 0600, whatever the umask says."""
    return os.open(path, flags, 0o600)


def write(path: Path, data: bytes) -> None:
    """Replace `path` in one step, so that readers see the old content or the new, never a part. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        _replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # the first error is the one to tell
        raise


def _replace(source: Path, target: Path) -> None:
    """`os.replace`; on Windows a reader that has the target open makes it fail for a moment."""
    for attempt in range(MAX_TRIES):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if os.name != "nt" or attempt == MAX_TRIES - 1:
                raise
            import time

            time.sleep(0.001 * 2**attempt)
