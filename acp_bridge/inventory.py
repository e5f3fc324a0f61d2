"""The library and the records as the rows that may be advertised now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from acp_bridge.models import Advertised
from acp_bridge.rowcache import RowCache
from shared.catalog.capability import InstanceSeen, OwnerSeen, Serveable, serveable_backend
from shared.catalog.entry import ModelEntry
from shared.catalog.rows import Live, hidden_reason, missing_reason, picker_rows
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.daemon.records import Records
    from shared.catalog.library import Library
    from shared.lease.reader import Survey
    from shared.paths import DataRoot
    from shared.settings import Settings

#: Records of this boot and of any other, as the graced answer tells them apart.
THIS_BOOT = "this"
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
        self._active = ""
        self._entries: Sequence[ModelEntry] = ()
        self._live = Live(serveable=Serveable(backend="", standing="none"))

    def on_change(self, listener: Callable[[], None]) -> None:
        """See acp_bridge.models.Inventory."""
        self._listener = listener

    def recall(self) -> Advertised:
        """See acp_bridge.models.Inventory."""
        remembered = self._cache.read()
        self._active = remembered.active
        return self._advertise(remembered.entries, None, "", {})

    def look(self, status: api.Status | None, connected_backend: str, rejected: Mapping[str, str]) -> Advertised:
        """See acp_bridge.models.Inventory."""
        entries = self._opened().rows()
        if status is not None and status.active is not None:
            self._active = status.active.name
        self._cache.write(entries, self._active)
        return self._advertise(entries, status, connected_backend, rejected)

    def poke(self) -> None:
        """See acp_bridge.models.Inventory."""
        if self._library is not None:
            self._library.rows(0)

    def refresh(self, wait: float = 0.0) -> bool:
        """See acp_bridge.models.Inventory."""
        return self._opened().refresh(wait)

    def missing(self, name: str) -> str:
        """See acp_bridge.models.Inventory."""
        return missing_reason(name, self._entries, self._live)

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
        self,
        entries: Sequence[ModelEntry],
        status: api.Status | None,
        connected_backend: str,
        rejected: Mapping[str, str],
    ) -> Advertised:
        serveable = self._serveable(connected_backend)
        self._entries = entries
        self._live = Live(serveable=serveable, status=status, rejected=rejected)
        rows = picker_rows(entries, self._live)
        return Advertised(
            rows=tuple(rows),
            reason="" if rows else self._empty_reason(serveable),
            grace_left=serveable.remaining,
            last_active=self._active,
        )

    def _empty_reason(self, serveable: Serveable) -> str:
        if not serveable.backend:
            return self._records.detect().error().message
        return hidden_reason(self._entries, self._live) or NO_MODELS

    def _serveable(self, connected_backend: str) -> Serveable:
        if connected_backend:
            return Serveable(backend=connected_backend, standing="live")
        survey = self._records.survey()
        now = time.monotonic()
        noticed = {instance: now - ago for instance, ago in self._records.noticed().items()}
        return serveable_backend(
            owner_seen(survey),
            instances_seen(survey),
            wall=time.time(),
            awake=now,
            boot_id=THIS_BOOT,
            grace=self._settings.grace_window,
            noticed=noticed,
        )


def owner_seen(survey: Survey) -> OwnerSeen | None:
    """The newest lease, as the graced answer reads it."""
    last = survey.last
    if last is None:
        return None
    return OwnerSeen(
        instance=last.instance,
        backend=last.backend,
        live=last.standing == "held",
        last_sign=time.time() - last.age_s,
        boot_id=THIS_BOOT if last.same_boot else "",
        released=last.released_reason,
    )


def instances_seen(survey: Survey) -> list[InstanceSeen]:
    """Every instance of the records, as the graced answer reads it."""
    return [
        InstanceSeen(
            instance=view.instance,
            backend=view.backend,
            started=view.started,
            boot_id=THIS_BOOT if view.same_boot else "",
            dead=view.dead and not view.ended_reason,
            ended=view.ended_reason,
            ended_at=time.time() - (view.ended_age_s or 0.0),
        )
        for view in survey.instances
    ]


def _nothing() -> None:
    """Nobody listens yet."""
