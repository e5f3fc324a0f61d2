"""The library and the records as the rows that may be advertised now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from acp_bridge.models.row_cache import RowCache, Seen
from acp_bridge.models.view import Advertised
from shared.catalog.advertised.capability import NOTHING, Servable, servable_backend
from shared.catalog.advertised.rows import Live, hidden_reason, missing_reason, picker_rows
from shared.catalog.entry import ModelEntry
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.daemon.records import Records
    from acp_bridge.models.library_view import LibraryView
    from shared.catalog.library import Library
    from shared.paths import DataRoot
    from shared.settings import Settings

NO_MODELS = "no models yet; `modeld pull starter` gets a small one"


class RecordedInventory:
    """Advertises by the graced answer: which backend's models can be served, not who answers this millisecond."""

    def __init__(self, root: DataRoot, settings: Settings, records: Records) -> None:
        self._root = root
        self._records = records
        self._settings = settings
        self._cache = RowCache(root.path / "bridge.rows")
        self._library: Library | None = None
        self._listener: Callable[[], None] = _nothing
        self._seen = Seen()
        self._entries: Sequence[ModelEntry] = ()
        self._serveable = NOTHING
        self._live = Live(servable=NOTHING)

    def on_change(self, listener: Callable[[], None]) -> None:
        """See acp_bridge.models.view.Inventory."""
        self._listener = listener

    def recall(self) -> Advertised | None:
        """See acp_bridge.models.view.Inventory."""
        remembered = self._cache.read()
        self._seen = remembered.seen
        recalled = self._advertise(remembered.entries, None, "")
        return recalled if recalled.rows or not self._serveable.backend else None

    def look(self, status: api.Status | None, connected_backend: str) -> Advertised:
        """See acp_bridge.models.view.Inventory."""
        entries = self._opened().rows()
        if status is not None:
            self._seen = self._seen.after(status)
        self._cache.write(entries, None if status is None else self._seen)
        return self._advertise(entries, status, connected_backend)

    def poke(self) -> None:
        """See acp_bridge.models.view.Inventory."""
        if self._library is not None:
            self._library.rows(0)

    def refresh(self, wait: float = 0.0) -> bool:
        """See acp_bridge.models.view.Inventory."""
        return self._opened().refresh(wait)

    def missing(self, name: str) -> str:
        """See acp_bridge.models.view.Inventory."""
        return missing_reason(name, self._entries, self._live)

    def library_view(self) -> LibraryView:
        """See acp_bridge.models.view.Inventory."""
        from acp_bridge.models.library_view import library_view

        library = self._library
        return library_view(
            self._entries,
            self._live,
            self._settings,
            complete=library is not None and library.complete,
            problems=library.problems if library is not None else (),
        )

    def _changed(self) -> None:
        self._listener()

    def _opened(self) -> Library:
        """The library of this process, imported and opened at first use."""
        if self._library is None:
            from shared.catalog.library import Library

            self._library = Library(self._root, self._settings)
            self._library.on_change(self._changed)
        return self._library

    def _advertise(
        self, entries: Sequence[ModelEntry], status: api.Status | None, connected_backend: str
    ) -> Advertised:
        servable = self._serveable = self._graced(connected_backend)
        self._entries = entries
        self._live = Live(servable=servable, status=status, rejected=self._seen.rejected)
        rows = picker_rows(entries, self._live)
        return Advertised(
            rows=tuple(rows),
            reason="" if rows else self._empty_reason(servable),
            grace_left=servable.remaining,
            active=self._seen.active,
            last_active=self._seen.last_active,
        )

    def _empty_reason(self, servable: Servable) -> str:
        if not servable.backend:
            return self._records.detect().error().message
        return hidden_reason(self._entries, self._live) or NO_MODELS

    def _graced(self, connected_backend: str) -> Servable:
        return servable_backend(
            self._records.survey(),
            self._records.noticed(),
            grace=self._settings.grace_window,
            connected=connected_backend,
            before=self._serveable,
        )


def _nothing() -> None:
    """Nobody listens yet."""
