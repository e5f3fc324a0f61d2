"""Writes a small file so that readers see the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_TRIES = 6


def write(path: Path, data: bytes) -> None:
    """Replace `path` in one step, readable by its owner alone. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        _replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
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
