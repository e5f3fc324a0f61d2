"""What the bridge knows of models: the library, what may be advertised, and the live state, joined.

Reading the library and the records happens in threads; `rows` and `away` answer at once from what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread
import msgspec

from acp_bridge.picker import Away, RemoteModel
from acp_bridge.resolve import HealDebounce
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.daemon.client import Daemon
    from shared.clock import Clock
    from shared.settings import Settings


class Advertised(msgspec.Struct, frozen=True, kw_only=True):
    """One look: the local models that may be shown, and why they cannot run now, if so."""

    rows: tuple[api.LibraryRow, ...] = ()
    away: Away = Away()


class Inventory(Protocol):
    """The library and the records, behind one blocking call each."""

    def recall(self) -> Advertised:
        """What was advertised last, as far as it still may be. Blocking; a few milliseconds at most."""
        ...

    def look(self, status: api.Status | None, connected_backend: str) -> Advertised:
        """What may be advertised now. Blocking; cheap when nothing changed."""
        ...

    def refresh(self) -> None:
        """Scan the library again. Blocking."""
        ...


class Models:
    """Local and remote models as one view. Listeners run in the loop when it changed."""

    def __init__(self, inventory: Inventory, daemon: Daemon, settings: Settings, clock: Clock) -> None:
        self._inventory = inventory
        self._daemon = daemon
        self._clock = clock
        self._heal = HealDebounce(settings.heal_debounce)
        self._healing: anyio.Event | None = None
        self._listeners: list[Callable[[], None]] = []
        self._advertised = Advertised()
        self._moved = anyio.Event()
        self.remotes: tuple[RemoteModel, ...] = ()
        self.known = anyio.Event()
        daemon.on_change(self.touch)

    @property
    def rows(self) -> Sequence[api.LibraryRow]:
        """The local models that may be shown."""
        return self._advertised.rows

    @property
    def away(self) -> Away:
        """Why they cannot run at this moment, if so."""
        return self._advertised.away

    @property
    def default(self) -> str:
        """The model of a conversation in which nobody picked yet: the active one, else the first."""
        status = self._daemon.status
        if status is not None and status.active is not None:
            return status.active.name
        chat = [row.name for row in self.rows if not row.embedding_only]
        if status is not None and status.hint_model in chat:
            return str(status.hint_model)
        return chat[0] if chat else ""

    def row(self, name: str) -> api.LibraryRow | None:
        """The advertised row of a model."""
        return next((row for row in self.rows if row.name == name), None)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` runs after each change of the rows or the state."""
        self._listeners.append(listener)

    def touch(self) -> None:
        """Look again soon."""
        self._moved.set()

    async def run(self) -> None:
        """Keep the view: it is looked at again after each `touch`."""
        recalled = await anyio.to_thread.run_sync(self._inventory.recall)
        if recalled.rows:
            self._become(recalled)
        while True:
            self._moved = anyio.Event()
            await self._look()
            await self._moved.wait()

    async def _look(self) -> None:
        advertised = await anyio.to_thread.run_sync(self._inventory.look, self._daemon.status, self._daemon.backend)
        self._become(advertised)

    def _become(self, advertised: Advertised) -> None:
        changed = advertised != self._advertised
        self._advertised = advertised
        self.known.set()
        if changed:
            for listener in self._listeners:
                listener()

    async def reconcile(self) -> None:
        """The heal of a resolution miss: the records, the connection and the library looked at anew, once for all
        misses within the debounce. Scoped to the local backend; never raises.
        """
        if self._healing is not None:
            await self._healing.wait()
            return
        if not self._heal.due(self._clock.awake(), self._daemon.lease_key):
            return
        self._healing = anyio.Event()
        try:
            await self._daemon.reconnect()
            await anyio.to_thread.run_sync(self._inventory.refresh)
            await self._look()
        finally:
            self._healing.set()
            self._healing = None
