"""For engines whose warm conversations lie where nobody can read them out, or that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeld.engine.kv_disk_cache import KvDiskCache


class KeepsNothing:
    """The part of `modeld.engine.contract.Engine` that is about parked conversations: there are none."""

    def trim_parked(self, limit: int) -> int:
        """Do nothing: no conversation is parked."""
        del limit
        return 0

    def attach(self, disk_cache: KvDiskCache) -> int:
        """Do nothing: there is no disk cache to read."""
        del disk_cache
        return 0

    def shelve(self, until: Callable[[], bool]) -> int:
        """Do nothing: there is no disk cache to write."""
        del until
        return 0
