"""A snapshot of the library: its rows, what would fit into memory, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from acp_bridge.models.memory_forecast import forecasts, room
from shared.catalog.advertised.fit import Fit
from shared.catalog.advertised.rows import Live, library_rows
from shared.protocol.api import LibraryRow

if TYPE_CHECKING:
    from shared.catalog.entry import ModelEntry
    from shared.settings import Settings


class LibraryView(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` with their live state, `fits` by name; `complete` is false while headers are still read."""

    rows: tuple[LibraryRow, ...] = ()
    fits: Mapping[str, Fit] = {}
    complete: bool = False
    problems: tuple[str, ...] = ()


def library_view(
    entries: Sequence[ModelEntry], live: Live, settings: Settings, *, complete: bool, problems: Sequence[str]
) -> LibraryView:
    """Models only: projectors and adapters are parts of them. Reads the machine's memory while modeld is away."""
    models = [entry for entry in entries if entry.kind == "model"]
    return LibraryView(
        rows=tuple(library_rows(models, live)),
        fits=forecasts(models, room(live.status, settings), settings),
        complete=complete,
        problems=tuple(problems),
    )
