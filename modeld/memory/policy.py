"""The arithmetic of a load: what it needs, what is free, what is kept, and the context that follows. Pure.

`auto` takes the model's training context if it fits, else the largest that fits, down to the smallest
useful one. It is computed from the model and the machine alone, never from an earlier answer, so that
describe, load, describe, load gives one answer. An explicit context is never lowered.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.catalog.advertised import fit
from shared.catalog.entry import ModelEntry
from shared.catalog.identity import AUTO, RequestedIdentity
from shared.errors import InsufficientMemory, UnsupportedFeature
from shared.protocol.api import Accelerator, MemoryPlan
from shared.settings import Settings

#: What OpenVINO's libraries and compiled graph take beside the weights, in bytes: measured on models of 135M and less.
OPENVINO_PROCESS = 200 << 20
#: KV type where nothing is asked.
USUAL_KV = "f16"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that grow with the context: `fixed + per_token * tokens`."""

    fixed: float
    per_token: float

    def at(self, tokens: int) -> int:
        """Bytes for a context of so many tokens."""
        return max(int(self.fixed + self.per_token * tokens), 0)


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's own sums for a model, from a dry run: before any load it knows more than a header tells."""

    weights: int
    kv: Line
    compute: Line


#: Of an engine that has none.
NO_ARITHMETIC = Arithmetic(weights=0, kv=Line(fixed=0, per_token=0), compute=Line(fixed=0, per_token=0))


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What a load of this model really took in bytes, its attention memory and working buffers apart.

    `stale`: measured with another engine version. It still informs, but the plan stays an estimate.
    """

    weights_bytes: int
    stale: bool = False


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One device's memory in bytes. `free` counts what a switch would give back as free."""

    device: str
    total: int
    free: int


def of_accelerators(found: Sequence[Accelerator]) -> DeviceMemory | None:
    """Their memory together, over which an engine spreads a model; None where one of them does not tell it."""
    if not found or not all(one.total_bytes for one in found):
        return None
    return DeviceMemory(
        device=", ".join(one.name for one in found),
        total=sum(one.total_bytes for one in found),
        free=sum(min(one.free_bytes, one.total_bytes) for one in found),
    )


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
    engine: Arithmetic | None = None,
    adapters: int = 0,
    projector: int = 0,
) -> MemoryPlan:
    """The numbers for `wanted`, also where they do not fit (see `require`). Raises UnsupportedFeature.

    What was measured goes before the engine's own arithmetic, that before the formula over the header.
    `adapters`, `projector`: bytes of their files; a projector is part of the weights.
    """
    kv_type = USUAL_KV if wanted.kv_type == AUTO else wanted.kv_type
    if kv_type not in fit.KV_TYPES:
        raise UnsupportedFeature(feature=f"KV type {kv_type} (known: {', '.join(fit.KV_TYPES)})")
    if wanted.num_ctx != AUTO and (wanted.min_ctx or 0) > wanted.num_ctx:
        raise UnsupportedFeature(feature=f"num_ctx {wanted.num_ctx} with min_ctx {wanted.min_ctx} (it is the smaller)")
    cost = Cost(entry, wanted.backend, kv_type, footprint, engine, adapters, projector)
    reserve = reserve_bytes(memory.total, settings)
    available = memory.free - reserve
    most = _most(entry, wanted, settings)
    fits = cost.largest(available, max(most, _train(entry, settings)))
    num_ctx = _context(wanted, fits, most, _least(entry, wanted, settings))
    if wanted.num_batch != AUTO and wanted.num_batch > num_ctx:
        raise UnsupportedFeature(feature=f"num_batch {wanted.num_batch} (1 to the context, {num_ctx})")
    if fits < num_ctx:
        fits = min(fits, _train(entry, settings))  # advice: more than the model was made for is none
    kv = cost.kv(num_ctx)
    return MemoryPlan(
        device=memory.device,
        weights_bytes=cost.weights,
        kv_bytes=kv,
        compute_bytes=cost.compute(num_ctx),
        adapters_bytes=cost.adapters,
        required_bytes=cost.required(num_ctx),
        free_bytes=memory.free,
        reserve_bytes=reserve,
        num_ctx=num_ctx,
        fits=fits or None,
        estimate=footprint is None or footprint.stale,
        source="measured" if footprint is not None else "engine" if engine is not None else "header",
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


def stretched(entry: ModelEntry, num_ctx: int) -> str:
    """What to tell of a context that the model was not made for, or ""."""
    if not entry.context_train or num_ctx <= entry.context_train:
        return ""
    return f"a context of {num_ctx} tokens is more than the {entry.context_train} that the model was trained on"


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


class Cost:
    """Bytes of one model, from the best source there is."""

    def __init__(
        self,
        entry: ModelEntry,
        backend: str,
        kv_type: str,
        footprint: Footprint | None,
        engine: Arithmetic | None,
        adapters: int = 0,
        projector: int = 0,
    ) -> None:
        self._entry = entry
        self._kv_type = kv_type
        self._engine = engine
        self.adapters = 0 if footprint is not None else adapters  # what was measured holds them
        if footprint is not None:
            self.weights = footprint.weights_bytes
        elif engine is not None:
            self.weights = engine.weights
        elif backend == "openvino" and entry.format == "gguf":
            self.weights = fit.unpacked_bytes(entry) or entry.size_bytes
        else:
            self.weights = fit.weights_bytes(entry) or entry.size_bytes
        if footprint is None:
            self.weights += projector + (OPENVINO_PROCESS if backend == "openvino" else 0)

    def kv(self, num_ctx: int) -> int:
        """Attention memory."""
        if self._engine is not None:
            return self._engine.kv.at(num_ctx)
        return fit.kv_bytes(self._entry, num_ctx, self._kv_type)

    def compute(self, num_ctx: int) -> int:
        """Working buffers."""
        if self._engine is not None:
            return self._engine.compute.at(num_ctx)
        return fit.compute_bytes(self._entry, num_ctx)

    def required(self, num_ctx: int) -> int:
        """All together."""
        return self.weights + self.adapters + self.kv(num_ctx) + self.compute(num_ctx)

    def largest(self, available: int, most: int) -> int:
        """The largest context up to `most` tokens that `available` bytes hold, in steps; 0: none."""
        if self.required(most) <= available:
            return most
        low, high = 0, most // fit.STEP
        while low < high:
            middle = (low + high + 1) // 2
            if self.required(middle * fit.STEP) <= available:
                low = middle
            else:
                high = middle - 1
        return low * fit.STEP
