"""The two digests of a weights file: the fingerprint that is there at once, and the full checksum."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence

from shared.system.foreign import progressed

WHOLE = 1024 * 1024
HEAD = 64 * 1024
SAMPLE = 4 * 1024
SAMPLES = 8
CHUNK = 1024 * 1024


def fingerprint(paths: Sequence[str]) -> str:
    """`fp1-<32 hex>` over the given files in order (see shared.catalog.entry). Raises OSError."""
    digest = hashlib.sha256()
    for path in paths:
        with open(long_path(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(size.to_bytes(8, "little"))
            if size <= WHOLE:
                digest.update(_exactly(file.read, size))
                continue
            digest.update(_exactly(file.read, HEAD))
            step = (size - HEAD - SAMPLE) // SAMPLES
            for index in range(1, SAMPLES + 1):
                file.seek(HEAD + step * index if index < SAMPLES else size - SAMPLE)
                digest.update(_exactly(file.read, SAMPLE))
    return f"fp1-{digest.hexdigest()[:32]}"


def checksum(path: str, stopped: Callable[[], bool] = lambda: False) -> str | None:
    """The SHA-256 of a whole file in hex, or None when `stopped` said so. Raises OSError.

    The pages read are given back to the system, so that a long pass over cold files does not push
    out the memory of a running model.
    """
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with open(long_path(path), "rb", buffering=0) as file:
        done = 0
        while count := file.readinto(buffer):
            if stopped():
                return None
            progressed()
            digest.update(view[:count])
            _forget(file.fileno(), done, count)
            done += count
    return digest.hexdigest()


def long_path(path: str) -> str:
    """The path in the form that may be longer than 260 characters on Windows; unchanged elsewhere."""
    if os.name != "nt" or len(path) < 240 or path.startswith("\\\\?\\"):
        return path
    absolute = os.path.abspath(path)
    return "\\\\?\\UNC\\" + absolute[2:] if absolute.startswith("\\\\") else "\\\\?\\" + absolute


def _exactly(read: Callable[[int], bytes | None], count: int) -> bytes:
    parts = []
    while count > 0:
        part = read(count)
        progressed()
        if not part:
            raise OSError("the file became shorter while it was read")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _forget(descriptor: int, offset: int, count: int) -> None:
    if sys.platform == "linux":
        os.posix_fadvise(descriptor, offset, count, os.POSIX_FADV_DONTNEED)
