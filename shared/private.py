"""The one rule for files under the data root: readable by their owner alone, from their first byte on."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

MAX_TRIES = 6


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
