"""Removing a model with everything that was made of it: what is parked of its conversations, and its conversion."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from shared.catalog.entry import ModelEntry
from shared.fetch.remove import InUse, remove
from shared.protocol.api import RemoveResult

if TYPE_CHECKING:
    from shared.paths import DataRoot


def remove_whole(entry: ModelEntry, others: Sequence[ModelEntry], in_use: InUse, root: DataRoot) -> RemoveResult:
    """See `shared.fetch.remove.remove`, whose errors it raises before anything is touched."""
    from modeld.engine import kv_disk_cache
    from modeld.engine.openvino import convert

    result = remove(entry, others, in_use)
    sources = [os.path.abspath(path) for path in result.removed]
    folders, converted = convert.forget(root.cache / "openvino", sources)
    parked, words = kv_disk_cache.forget(root.parked, entry.name)
    return msgspec.structs.replace(
        result,
        removed=[*result.removed, *folders],
        freed_bytes=result.freed_bytes + converted + words,
        parked=parked,
    )
