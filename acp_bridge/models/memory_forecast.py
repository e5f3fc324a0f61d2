"""What would fit into memory now, model by model: from the daemon's account, else from the machine's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from shared.catalog.advertised.fit import Fit, estimate

if TYPE_CHECKING:
    from shared.catalog.entry import ModelEntry
    from shared.protocol.api import MemoryPlan, Status
    from shared.settings import Settings


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes: what a load may find free once the resident model has gone, and what is kept for the desktop."""

    free: int
    reserve: int


def room(status: Status | None, settings: Settings) -> Room:
    """Reads the machine's memory when the daemon is away. Some milliseconds then; blocks."""
    memory = status.memory if status is not None else None
    if memory is not None and memory.free_bytes is not None and memory.reserve_bytes is not None:
        given_back = memory.measured_bytes or 0
        return Room(free=memory.free_bytes + given_back, reserve=memory.reserve_bytes)
    import psutil  # only while modeld is away

    machine = psutil.virtual_memory()
    return Room(free=machine.available, reserve=reserve_bytes(machine.total, settings))


def reserve_bytes(total: int, settings: Settings) -> int:
    """What is kept free of a device of `total` bytes. Pure."""
    wanted = max(settings.memory_reserve_floor, int(total * settings.memory_reserve_fraction))
    return min(wanted, int(total * settings.memory_reserve_cap))


def forecasts(entries: Iterable[ModelEntry], space: Room, settings: Settings) -> dict[str, Fit]:
    """By name, for every model that an engine can run and whose header tells its size. Pure."""
    found = {
        entry.name: forecast(entry, space, settings)
        for entry in entries
        if entry.backends and entry.kind == "model" and not entry.problem
    }
    return {name: fit for name, fit in found.items() if fit.verdict != "unknown"}


def forecast(entry: ModelEntry, space: Room, settings: Settings, wanted: int | None = None) -> Fit:
    """For one model, with `wanted` tokens of context if given. Pure."""
    return estimate(entry, free=space.free, reserve=space.reserve, least=settings.least_context, wanted=wanted)


def planned(plan: MemoryPlan) -> Fit:
    """The daemon's own plan in the same words."""
    fits = plan.fits or 0
    return Fit(
        verdict="fits" if fits >= plan.num_ctx else "fits_smaller" if fits else "too_big",
        num_ctx=min(fits, plan.num_ctx) if fits else 0,
        weights_bytes=plan.weights_bytes,
        kv_bytes=plan.kv_bytes,
        compute_bytes=plan.compute_bytes,
        required_bytes=plan.required_bytes,
        free_bytes=plan.free_bytes,
        reserve_bytes=plan.reserve_bytes,
        source=plan.source,
    )
