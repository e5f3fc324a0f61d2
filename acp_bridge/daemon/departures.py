"""Records when a killed modeld was first missed, so that bridges started later count its grace from then.

A process that is killed leaves no time in the records. Without the note each bridge would count the grace from its own
first look, and one that is opened long afterwards would show models that nobody can serve. Advisory: a file that cannot
be read or written only makes each bridge count for itself.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from shared.system import private
from shared.text.nesting import decode_json

FILE_NAME = "bridge.gone"


class Departures:
    """Wall times by instance, in one file under the data root."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def noted(self, dead: Collection[str], wall: float) -> dict[str, float]:
        """Seconds since each of these instances was first missed by anybody; those new to everybody are noted now.

        A note from the future (the clock was set back) counts as none. Blocks shortly.
        """
        known = self._read()
        kept = {instance: at for instance, at in known.items() if instance in dead and at <= wall}
        for instance in dead:
            kept.setdefault(instance, wall)
        if kept != known:
            self._write(kept)
        return {instance: wall - at for instance, at in kept.items()}

    def _read(self) -> dict[str, float]:
        try:
            return decode_json(self._path.read_bytes(), dict[str, float])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write(self, notes: dict[str, float]) -> None:
        try:
            private.write(self._path, msgspec.json.encode(notes))
        except OSError:
            return
