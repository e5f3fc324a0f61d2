"""For engines whose warm conversations lie where nobody can read them out, or that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeld.engine.kv_disk_cache import KvDiskCache


class KeepsNothing:
    """The part of `modeld.engine.contract.Engine` that is about parked conversations: there are none."""

    def trim_parked(self, limit: int) -> int:
        """Nothing is parked."""
        del limit
        return 0

    def attach(self, disk_cache: KvDiskCache) -> int:
        """Nothing is taken from a disk cache."""
        del disk_cache
        return 0

    def shelve(self, until: Callable[[], bool]) -> int:
        """Nothing is put on one."""
        del until
        return 0
