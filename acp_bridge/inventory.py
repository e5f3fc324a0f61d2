"""The library and the records as the rows that may be advertised now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acp_bridge.models import Advertised
from acp_bridge.picker import Away
from acp_bridge.rowcache import CachedRow, RowCache
from shared.protocol import api

if TYPE_CHECKING:
    from shared.catalog.library import Library
    from acp_bridge.daemon.records import Records
    from shared.catalog.entry import ModelEntry
    from shared.paths import DataRoot
    from shared.settings import Settings


class RecordedInventory:
    """Advertises by the graced answer: which backend's models can be served, not who answers this millisecond."""

    def __init__(self, root: DataRoot, settings: Settings, records: Records) -> None:
        self._root = root
        self._records = records
        self._settings = settings
        self._cache = RowCache(root.path / "bridge.rows")
        self._library: Library | None = None

    @property
    def library(self) -> Library:
        """The library of this process, imported and opened at first use."""
        if self._library is None:
            from shared.catalog.library import Library

            self._library = Library(self._root, self._settings)
        return self._library

    def recall(self) -> Advertised:
        """See acp_bridge.models.Inventory."""
        return self._advertise(self._cache.read(), None, "")

    def look(self, status: api.Status | None, connected_backend: str) -> Advertised:
        """See acp_bridge.models.Inventory."""
        rows = tuple(CachedRow(row=row_of(entry), backends=entry.backends) for entry in self.library.rows())
        self._cache.write(rows)
        return self._advertise(rows, status, connected_backend)

    def refresh(self) -> None:
        """See acp_bridge.models.Inventory."""
        self.library.refresh()

    def _advertise(
        self, rows: tuple[CachedRow, ...], status: api.Status | None, connected_backend: str
    ) -> Advertised:
        backend, away = self._serveable(connected_backend)
        if not backend:
            return Advertised(away=away)
        shown = tuple(with_state(known.row, backend, status) for known in rows if backend in known.backends)
        return Advertised(rows=shown, away=away)

    def _serveable(self, connected_backend: str) -> tuple[str, Away]:
        if connected_backend:
            return connected_backend, Away()
        detection = self._records.detect()
        survey = self._records.survey()
        reason = detection.error().message
        living = next((view.backend for view in survey.living), "")
        if survey.owner is not None and survey.owner.standing == "held":
            living = survey.owner.backend
        if living:
            return living, Away()
        recent = detection.last_seen is not None and 0 <= detection.last_seen <= self._settings.grace_window
        if recent and survey.last is not None:
            state = "stopped, start modeld" if detection.stopped else "restarting"
            return survey.last.backend, Away(state=state, reason=reason)
        return "", Away(reason=reason)


def row_of(entry: ModelEntry) -> api.LibraryRow:
    """An entry of the library, without live state."""
    return api.LibraryRow(
        name=entry.name,
        title=entry.title,
        backend="",
        format=entry.format,
        path=entry.path,
        size_bytes=entry.size_bytes,
        architecture=entry.architecture,
        parameters=entry.parameters,
        quantization=entry.quantization,
        context_train=entry.context_train,
        digest=entry.digest,
        source=entry.source,
        has_template=entry.has_template,
        tools=entry.tools,
        thinking=entry.thinking,
        vision=entry.vision,
        fim=entry.fim is not None,
        embedding_only=entry.embedding_only,
        reason=entry.problem,
    )


def with_state(row: api.LibraryRow, backend: str, status: api.Status | None) -> api.LibraryRow:
    """The row as it stands in the slot now."""
    return msgspec.structs.replace(row, backend=backend, state=_state(row.name, status))


def _state(name: str, status: api.Status | None) -> api.RowState:
    if status is None or status.active is None or status.active.name != name:
        return "not loaded"
    return "active" if status.state == "Busy" else "loaded"
