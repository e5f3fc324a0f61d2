"""Removes a model from the store: `modeld rm`. Only what we wrote, and never what is in use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from shared.catalog import pulled_record
from shared.catalog.entry import ModelEntry
from shared.errors import ModelInUse, UnsupportedFeature
from shared.protocol.api import RemoveResult

InUse = Callable[[Sequence[str]], "tuple[str, str] | None"]


def remove(entry: ModelEntry, others: Sequence[ModelEntry], in_use: InUse) -> RemoveResult:
    """Delete the files of `entry` that are ours: shards or folder, and a projector no other model shares.

    `others` are the library's rows; `in_use` is asked with the files about to go and answers
    `(state, holder)` when one of them serves a model in any state but not loaded. Raises ModelInUse,
    UnsupportedFeature (a file we did not write), OSError.
    """
    needed = {part for other in others if other.name != entry.name for part in other.parts}
    paths = [path for path in entry.parts if path not in needed]
    foreign = [path for path in entry.shards or (entry.path,) if pulled_record.read_record(Path(path)) is None]
    if foreign:
        message = f"{foreign[0]} was not written by modeld and is left alone; delete it yourself if you want to"
        raise UnsupportedFeature(message, feature="removing foreign files")
    used = in_use(paths)
    if used is not None:
        raise ModelInUse(state=used[0], holder=used[1])
    removed, freed = [], 0
    for path in paths:
        file = Path(path)
        if pulled_record.read_record(file) is None:
            continue  # a projector somebody else put there stays
        freed += pulled_record.stored_size(file)
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()
        pulled_record.forget(file)
        removed.append(path)
    return RemoveResult(removed=removed, freed_bytes=freed)
