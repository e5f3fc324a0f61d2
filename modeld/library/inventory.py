"""What the daemon adds to the library: which models fit now, and their full checksums while nothing else runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from modeld.memory.policy import DeviceMemory, reserve_bytes
from modeld.memory.probe import host_memory
from shared.catalog.advertised import fit
from shared.diagnosis.threads import in_thread
from shared.errors import ResourcesExhausted
from shared.protocol import api

if TYPE_CHECKING:
    from shared.catalog.entry import ModelEntry
    from shared.catalog.library import Library
    from shared.settings import Settings

#: Seconds before the first sums are computed, and between looks for new files. A start has better things to do.
CHECKSUM_PAUSE = 60.0


def fit_texts(
    entries: Iterable[ModelEntry],
    settings: Settings,
    given_back: int = 0,
    memory: DeviceMemory | None = None,
) -> dict[str, str]:
    """A line on whether it fits, by name, of every model that an engine can run. Some milliseconds; blocks.

    An estimate from the header and the memory that is free now (of the host, unless `memory` is given) with what a
    switch would give back, in bytes: the resident model goes before another one comes.
    """
    memory = host_memory() if memory is None else memory
    reserve = reserve_bytes(memory.total, settings)
    free = min(memory.free + given_back, memory.total)
    return {
        entry.name: fit.estimate(entry, free=free, reserve=reserve, least=settings.least_context).text
        for entry in entries
        if entry.backends
    }


async def keep_checksums(library: Library, busy: Callable[[], bool]) -> None:
    """Compute missing SHA-256 sums whenever `busy` says no; stops within a megabyte of reading when it says yes."""
    while True:
        await anyio.sleep(CHECKSUM_PAUSE)
        if not busy():
            with suppress(ResourcesExhausted):  # the next round may get its thread
                await in_thread(library.compute_checksums, busy)


async def listed(
    library: Library,
    settings: Settings,
    status: api.Status,
    given_back: int,
    rejected: Mapping[str, str],
    *,
    live_only: bool,
) -> api.LibraryResult:
    """The library's rows with the live state; `live_only`: those that this daemon can serve. `given_back` in bytes."""
    from modeld.engine.backends import available
    from shared.catalog.advertised.capability import Servable
    from shared.catalog.advertised.rows import Live, library_rows, picker_rows

    entries = await in_thread(library.rows)
    live = Live(
        servable=Servable(backend=status.backend, standing="live"),
        status=status,
        engines=frozenset(one.backend for one in available() if one.importable),
        fits=await in_thread(fit_texts, entries, settings, given_back),
        rejected=rejected,
    )
    rows = picker_rows(entries, live) if live_only else library_rows(entries, live)
    return api.LibraryResult(rows=rows, complete=library.complete, problems=library.problems)
