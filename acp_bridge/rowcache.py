"""The models of the last look, kept on disk: a picker is filled before the library's code is even imported.

Advisory: what executes is resolved against the library itself. A file that cannot be read or written is no model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shared.catalog.entry import ModelEntry


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The models of the last look, and the model that was active last: what an unpicked conversation would use."""

    entries: tuple[ModelEntry, ...] = ()
    active: str = ""


class RowCache:
    """One file beside the library's own cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: bytes | None = None

    def read(self) -> Remembered:
        """What any bridge saw last; empty when there is nothing to be had."""
        try:
            data = self._path.read_bytes()
            remembered = msgspec.json.decode(data, type=Remembered)
        except (OSError, msgspec.DecodeError):
            return Remembered()
        self._written = data
        return remembered

    def write(self, entries: Sequence[ModelEntry], active: str) -> None:
        """Replace the file when something differs. Silent on a root that cannot be written: nothing depends on it."""
        data = msgspec.json.encode(Remembered(entries=tuple(light(entry) for entry in entries), active=active))
        if data == self._written:
            return
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            part.write_bytes(data)
            part.replace(self._path)
        except OSError:
            return
        self._written = data


def light(entry: ModelEntry) -> ModelEntry:
    """The entry without what only an engine needs, so that a hundred of them are read in a millisecond."""
    mark = entry.template[:1]  # that there is one decides which model is the default
    return msgspec.structs.replace(entry, template=mark, templates=(), kv=(), tensor_types={}, shards=())
