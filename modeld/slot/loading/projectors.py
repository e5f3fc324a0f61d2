"""Remembers projectors and vision graphs that ended a worker; the model is then loaded for text only.

Of a GGUF file that is its projector, of an OpenVINO folder its vision graph. One that cannot be read leaves a
model for words by itself. One that native code stumbles over ends the whole process instead, at the load or at the
first image; without this each next prompt would run into the same again.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from shared.catalog.entry import ModelEntry
from shared.catalog.multi_graph import projector_path
from shared.system.foreign import ask

Signature = tuple[int, int, int] | None


def signature(path: str) -> Signature:
    """Changes with the file; None where it cannot be looked at."""
    try:
        facts = ask(path, lambda: os.stat(path))
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


class Projectors:
    """For this process's life only, so that an upgraded engine gets its chance. From any thread."""

    def __init__(self, look: Callable[[str], Signature] = signature) -> None:
        self._look = look
        self._bad: dict[str, tuple[Signature, str]] = {}
        self._left_out: dict[str, str] = {}

    def note(self, model: str, projector: str, reason: str) -> str:
        """A worker that saw by this file ended so; what to tell of it, behind the reason. `model`: the model's path."""
        path = os.path.join(model, projector)
        self._bad[path] = self._look(path), reason
        return f"{os.path.basename(path)}, which it needs for images, is left out of the next load: for text alone"

    def without(self, entry: ModelEntry) -> ModelEntry:
        """The entry as it may be loaded."""
        path = os.path.join(entry.path, projector_path(entry))  # of an absolute one that is the path itself
        if not self._reason(path):
            self._left_out.pop(entry.path, None)
            return entry
        self._left_out[entry.path] = path
        return msgspec.structs.replace(entry, projector="", vision=False)

    def warnings(self, entry: ModelEntry) -> list[str]:
        """What a load of an entry that `without` gave has to say."""
        left_out = self._left_out.get(entry.path, "")
        reason = self._reason(left_out)
        name = os.path.basename(left_out)
        return [f"images are refused: {name}, which it needs for images, ended the engine ({reason})"] if reason else []

    def _reason(self, path: str) -> str:
        known = self._bad.get(path) if path else None
        return known[1] if known is not None and known[0] == self._look(path) else ""
