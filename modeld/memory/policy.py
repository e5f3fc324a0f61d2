"""The arithmetic of a load: what it needs, what is free, what is kept, and the context that follows. Pure.

`auto` takes the model's training context if it fits, else the largest that fits, down to the smallest
useful one. It is computed from the model and the machine alone, never from an earlier answer, so that
describe, load, describe, load gives one answer. An explicit context is never lowered.
"""

from __future__ import annotations

import msgspec

from shared.catalog import fit
from shared.catalog.entry import ModelEntry
from shared.catalog.identity import AUTO, RequestedIdentity
from shared.errors import InsufficientMemory, UnsupportedFeature
from shared.protocol.api import MemoryPlan
from shared.settings import Settings

#: KV type where nothing is asked.
USUAL_KV = "f16"


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What a load of this model really took, in bytes, at `num_ctx` tokens with this KV type.

    `kv_scale`: the engine's own arithmetic of the attention memory over ours. `stale`: it still informs, but the
    plan stays an estimate.
    """

    measured_bytes: int
    num_ctx: int
    kv_type: str = USUAL_KV
    stale: bool = False
    kv_scale: float = 1.0


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One device's memory in bytes. `free` counts what a switch would give back as free."""

    device: str
    total: int
    free: int


def reserve_bytes(total: int, settings: Settings) -> int:
    """What is kept for the desktop on a device of `total` bytes (section "Memory" of the design)."""
    wanted = max(settings.memory_reserve_floor, int(total * settings.memory_reserve_fraction))
    return min(wanted, int(total * settings.memory_reserve_cap))


def plan(
    entry: ModelEntry,
    wanted: RequestedIdentity,
    memory: DeviceMemory,
    settings: Settings,
    footprint: Footprint | None = None,
) -> MemoryPlan:
    """The numbers for `wanted`, also where they do not fit (see `require`). Raises UnsupportedFeature (KV type)."""
    kv_type = USUAL_KV if wanted.kv_type == AUTO else wanted.kv_type
    if kv_type not in fit.KV_TYPES:
        raise UnsupportedFeature(feature=f"KV type {kv_type}")
    cost = _Cost(entry, kv_type, footprint)
    reserve = reserve_bytes(memory.total, settings)
    available = memory.free - reserve
    most = _most(entry, wanted, settings)
    fits = cost.largest(available, max(most, _train(entry, settings)))
    num_ctx = _context(wanted, fits, most, _least(entry, wanted, settings))
    kv = cost.kv(num_ctx)
    return MemoryPlan(
        device=memory.device,
        weights_bytes=cost.weights,
        kv_bytes=kv,
        compute_bytes=cost.compute,
        required_bytes=cost.weights + kv + cost.compute,
        free_bytes=memory.free,
        reserve_bytes=reserve,
        num_ctx=num_ctx,
        fits=fits or None,
        estimate=footprint is None or footprint.stale,
    )


def require(found: MemoryPlan) -> MemoryPlan:
    """The plan, if it fits. Raises InsufficientMemory with its arithmetic."""
    if found.required_bytes + found.reserve_bytes > found.free_bytes:
        raise InsufficientMemory(
            device=found.device,
            required_bytes=found.required_bytes,
            free_bytes=found.free_bytes,
            reserve_bytes=found.reserve_bytes,
            fits=found.fits,
        )
    return found


def under_pressure(memory: DeviceMemory, settings: Settings) -> bool:
    """Whether less than the reserve is free: said at turn boundaries, never acted on in a turn."""
    return memory.free < reserve_bytes(memory.total, settings)


def _train(entry: ModelEntry, settings: Settings) -> int:
    return entry.context_train or settings.least_context


def _most(entry: ModelEntry, wanted: RequestedIdentity, settings: Settings) -> int:
    if wanted.num_ctx != AUTO:
        return wanted.num_ctx
    return max(_train(entry, settings), wanted.min_ctx or 0)


def _least(entry: ModelEntry, wanted: RequestedIdentity, settings: Settings) -> int:
    return max(min(settings.least_context, _train(entry, settings)), wanted.min_ctx or 0)


def _context(wanted: RequestedIdentity, fits: int, most: int, least: int) -> int:
    if wanted.num_ctx != AUTO:
        return wanted.num_ctx
    return max(least, min(fits, most))


class _Cost:
    """Bytes of one model: from a measured load where there is one, else from its header."""

    def __init__(self, entry: ModelEntry, kv_type: str, footprint: Footprint | None) -> None:
        self._entry = entry
        self._kv_type = kv_type
        self._kv_scale = footprint.kv_scale if footprint is not None else 1.0
        self.compute = fit.compute_bytes(entry)
        self.weights = fit.weights_bytes(entry) or entry.size_bytes
        if footprint is not None:
            # What was measured holds weights, buffers and the KV of its context; the KV part is arithmetic.
            beside = footprint.measured_bytes - fit.kv_bytes(entry, footprint.num_ctx, footprint.kv_type)
            self.weights = max(beside - self.compute, 0)

    def kv(self, num_ctx: int) -> int:
        return int(fit.kv_bytes(self._entry, num_ctx, self._kv_type) * self._kv_scale)

    def largest(self, available: int, most: int) -> int:
        """The largest context up to `most` tokens that `available` bytes hold, in steps; 0: none."""
        fixed = self.weights + self.compute
        if fixed + self.kv(most) <= available:
            return most
        low, high = 0, most // fit.STEP
        while low < high:
            middle = (low + high + 1) // 2
            if fixed + self.kv(middle * fit.STEP) <= available:
                low = middle
            else:
                high = middle - 1
        return low * fit.STEP
