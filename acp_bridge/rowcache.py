"""The rows of the last look, kept on disk: a picker is filled before the library's code is even imported.

Advisory: what executes is resolved against the library itself. A file that cannot be read or written is no row.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from shared.protocol.api import LibraryRow


class CachedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the library, without live state, and the backends that can serve it."""

    row: LibraryRow
    backends: tuple[str, ...]


class RowCache:
    """One file beside the library's own cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: bytes | None = None

    def read(self) -> tuple[CachedRow, ...]:
        """The rows of the last look of any bridge; empty when there are none to be had."""
        try:
            data = self._path.read_bytes()
            rows = msgspec.json.decode(data, type=tuple[CachedRow, ...])
        except (OSError, msgspec.DecodeError):
            return ()
        self._written = data
        return rows

    def write(self, rows: tuple[CachedRow, ...]) -> None:
        """Replace the file when the rows differ. Silent on a root that cannot be written: nothing depends on it."""
        data = msgspec.json.encode(rows)
        if data == self._written:
            return
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            part.write_bytes(data)
            part.replace(self._path)
        except OSError:
            return
        self._written = data
