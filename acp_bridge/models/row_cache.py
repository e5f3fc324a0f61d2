"""The models of the last look, kept on disk: a picker is filled before the library's code is even imported.

Advisory: what executes is resolved against the library itself. A file that cannot be read or written is no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shared.catalog.entry import ModelEntry
from shared.protocol.api import SlotStateName, Status
from shared.system import private
from shared.text.nesting import decode_json

#: A row has about a kilobyte: what is longer than this was not written by a bridge.
MOST_BYTES = 16 * 1024 * 1024
#: While the slot is in one of these, what is active is about to change, or modeld is about to go.
UNSETTLED: frozenset[SlotStateName] = frozenset({"Loading", "Switching", "Unloading", "ShuttingDown", "LostOwner"})


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What modeld said last, by which pickers are arranged while it is away; a bridge born in the gap reads it.

    `active`: the model in the slot, "" when it was empty; `last_active`: the one that was there last, which a
    conversation without a pick would use; `rejected`: reasons by digest.
    """

    active: str = ""
    last_active: str = ""
    rejected: Mapping[str, str] = {}

    def after(self, status: Status) -> Seen:
        """With what this status says."""
        name = status.active.name if status.active is not None else ""
        return Seen(
            active=self.active if status.state in UNSETTLED else name,
            last_active=name or self.last_active,
            rejected={one.digest: one.reason for one in status.rejected},
        )


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The models of the last look, and what modeld said last."""

    entries: tuple[ModelEntry, ...] = ()
    seen: Seen = Seen()


class RowCache:
    """One file beside the library's own cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: bytes | None = None

    def read(self) -> Remembered:
        """What any bridge saw last; empty when there is nothing to be had."""
        try:
            data = private.read(self._path, MOST_BYTES)
            remembered = decode_json(data, Remembered)
        except (OSError, msgspec.DecodeError):
            return Remembered()
        self._written = data
        return remembered

    def write(self, entries: Sequence[ModelEntry], seen: Seen | None) -> None:
        """Replace the file when something differs; without `seen`, what another bridge heard of modeld stays.

        Silent on a root that cannot be written: nothing depends on it.
        """
        seen = self.read().seen if seen is None else seen
        data = msgspec.json.encode(Remembered(entries=tuple(light(entry) for entry in entries), seen=seen))
        if data == self._written:
            return
        try:
            private.write(self._path, data)
        except OSError:
            return
        self._written = data


def light(entry: ModelEntry) -> ModelEntry:
    """The entry without what only an engine needs, so that a hundred of them are read in a millisecond."""
    mark = entry.template[:1]  # that there is one decides which model is the default
    return msgspec.structs.replace(entry, template=mark, templates=(), kv=(), tensor_types={}, shards=())
