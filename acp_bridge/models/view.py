"""Joins what the bridge knows of models: the library, what may be advertised, and the live state.

Reading the library and the records happens in threads; `rows` and `away` answer at once from what is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread
import msgspec

from acp_bridge.models.picker import RemoteModel, is_remote, row_called
from acp_bridge.models.resolve import HealDebounce
from shared.diagnosis.threads import poster
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.models.library_view import LibraryView
    from shared.clock import Clock
    from shared.settings import Settings


#: How long opening a session waits for a first look at the library: its budget is 100 ms in all.
PATIENCE_S = 0.06
#: And for what was seen and picked before: some milliseconds of small files, more only where everything is slow. A
#: first answer without them would show an editor that its pick is gone.
RECALL_S = 1.0
#: A first look at a cold library takes about this long at most: so long a name is not called missing.
FIRST_LOOK_S = 2.0
#: A provider is asked once within this time, its library imported: so long its models are not called missing.
REMOTE_LOOK_S = 8.0
#: New and removed files show within 15 s; each check wakes an idle process.
FILES_CHECK_S = 12.0
#: How long the heal of a missing model waits for the library.
HEAL_LOOK_S = 1.0
#: Said until the library has been looked at for the first time.
LOOKING = "still looking for models"
#: The grace has surely ended this long after its end.
GRACE_END_S = 0.05


class Advertised(msgspec.Struct, frozen=True, kw_only=True):
    """One look: the local models that may be shown; when there are none, `reason` says why.

    `active` names the model that is active as far as modeld said last, "" when none; `last_active` the one that was
    active last. `grace_left` in seconds: how long they stay listed while modeld is away, 0 while it is there.
    """

    rows: tuple[api.LibraryRow, ...] = ()
    reason: str = ""
    grace_left: float = 0.0
    active: str = ""
    last_active: str = ""


class Inventory(Protocol):
    """The library and the records. `recall`, `look` and `refresh` block and run in threads."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called from any thread when the files changed."""
        ...

    def recall(self) -> Advertised | None:
        """What was advertised last, as far as it still may be; a few milliseconds at most.

        None when only a look at the library can tell.
        """
        ...

    def look(self, status: api.Status | None, connected_backend: str) -> Advertised:
        """What may be advertised now; cheap when nothing changed."""
        ...

    def poke(self) -> None:
        """Have the files looked at again, in the background."""
        ...

    def refresh(self, wait: float = 0.0) -> object:
        """Scan the library again, and wait for it up to `wait` seconds."""
        ...

    def missing(self, name: str) -> str:
        """Why this model was not among the rows of the last look."""
        ...

    def library_view(self) -> LibraryView:
        """Everything on disk as of the last look, with what would fit now; some milliseconds, blocks."""
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
        self.remote_missing: Callable[[str], str] = lambda name: "no provider is configured"
        self.remote_look: Callable[[str], Awaitable[None]] = _no_look  # until the provider of a name was asked once
        self.recalled = anyio.Event()  # what was advertised last has been looked for
        self.known = anyio.Event()  # something can be shown
        self.looked = anyio.Event()  # the library itself has been looked at
        daemon.on_change(self.touch)

    @property
    def rows(self) -> Sequence[api.LibraryRow]:
        """The local models that may be shown."""
        return self._advertised.rows

    @property
    def reason(self) -> str:
        """Why there are no rows, "" when there are some."""
        return self._advertised.reason or ("" if self.rows or self.looked.is_set() else LOOKING)

    @property
    def active(self) -> str:
        """The model that stands under its own heading, "" when none."""
        return self._advertised.active

    def missing(self, name: str) -> str:
        """Why this pick is not among the rows."""
        if is_remote(name):
            return self.remote_missing(name)
        return self._advertised.reason or self._inventory.missing(name)

    async def library_view(self) -> LibraryView:
        """Everything on disk, servable or not."""
        return await anyio.to_thread.run_sync(self._inventory.library_view, abandon_on_cancel=True)

    @property
    def default(self) -> str:
        """The model of a conversation in which nobody picked yet: the one active last, else the first made for chat."""
        chat = [row for row in self.rows if not row.embedding_only]
        last = row_called(self._advertised.last_active, chat)
        if last is not None:
            return last.name
        best = [row for row in chat if row.has_template] or chat
        return best[0].name if best else ""

    def row(self, name: str) -> api.LibraryRow | None:
        """The advertised row of a model."""
        return row_called(name, self.rows)

    def found(self, name: str) -> api.LibraryRow | RemoteModel | None:
        """The advertised row, or the remote model, of this name."""
        return self.row(name) or next((remote for remote in self.remotes if remote.id == name), None)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` runs after each change of the rows or the state."""
        self._listeners.append(listener)

    def touch(self) -> None:
        """Look again soon."""
        self._moved.set()

    async def run(self) -> None:
        """Keep the view: looked at again after each `touch`, when the files change, and when the grace ends."""
        post = poster()
        self._inventory.on_change(lambda: post(self.touch))
        recalled = await anyio.to_thread.run_sync(self._inventory.recall, abandon_on_cancel=True)
        if recalled is not None:
            self._become(recalled)
        self.recalled.set()
        while True:
            self._moved = anyio.Event()
            await self._look()
            while not await self._moved_within(self._pause()):
                if self._advertised.grace_left:
                    break
                self._inventory.poke()

    def _pause(self) -> float:
        left = self._advertised.grace_left
        return min(FILES_CHECK_S, left + GRACE_END_S) if left else FILES_CHECK_S

    async def until_known(self, *others: anyio.Event) -> None:
        """Before a picker is shown for the first time: what was remembered (`others` too) is there, bounded."""
        with anyio.move_on_after(RECALL_S):
            for recalled in (self.recalled, *others):
                await recalled.wait()
        with anyio.move_on_after(PATIENCE_S):
            await self.known.wait()

    async def first_look(self, name: object) -> None:
        """Until what may hold this name has been looked at once, bounded: its provider, or the library."""
        if isinstance(name, str) and is_remote(name):
            with anyio.move_on_after(REMOTE_LOOK_S):
                await self.remote_look(name)
            return
        with anyio.move_on_after(FIRST_LOOK_S):
            await self.looked.wait()

    async def first_rows(self) -> None:
        """Until something can be shown, be it from memory; when that is nothing, until the first look. Bounded."""
        with anyio.move_on_after(FIRST_LOOK_S):
            await self.known.wait()
            if not self.rows:
                await self.looked.wait()

    async def look(self, limit: float) -> None:
        """Look at everything now, complete within `limit` seconds or not."""
        await anyio.to_thread.run_sync(self._inventory.refresh, limit, abandon_on_cancel=True)
        await self._look()

    async def _moved_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._moved.wait()
        return self._moved.is_set()

    async def _look(self) -> None:
        status = self._daemon.status
        advertised = await anyio.to_thread.run_sync(
            self._inventory.look, status, self._daemon.backend, abandon_on_cancel=True
        )
        self.looked.set()
        self._become(advertised)

    def _become(self, advertised: Advertised) -> None:
        changed = advertised != self._advertised
        self._advertised = advertised
        self.known.set()
        if changed:
            for listener in self._listeners:
                listener()

    async def reconcile(self) -> None:
        """The heal of a resolution miss: the records, the connection and the library looked at again, once for all
        misses within the debounce. Scoped to the local backend; never raises.
        """
        key = await self._daemon.records_key()
        while self._healing is not None:
            await self._healing.wait()
        if not self._heal.due(self._clock.awake(), key):
            return
        healing = self._healing = anyio.Event()
        healed = False
        try:
            await self._daemon.reconnect()
            await anyio.to_thread.run_sync(self._inventory.refresh, HEAL_LOOK_S, abandon_on_cancel=True)
            await self._look()
            healed = True
        finally:
            if not healed:
                self._heal.forget()  # cancelled with its prompt: whoever waits for it does it instead
            self._healing = None
            healing.set()


async def _no_look(name: str) -> None:
    """Nothing is far away."""
