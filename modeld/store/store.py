"""The coordination store: what outlives an owner. The owner writes, everybody else reads.

Each write checks, inside its own transaction, that this ownership is still the one in the owner row:
an owner that was taken over while it hung cannot write a single row any more.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from modeld.store import database, tables
from modeld.store.database import Corrupt, StoreBusy
from modeld.store.rows import AuditRow, Footprint, Recovered, TurnRow, WorkspaceLease
from modeld.store.writer import Writer
from shared.clock import Clock, SystemClock
from shared.diagnosis.threads import in_thread
from shared.errors import ModeldError, NotOwner, RootUnusable
from shared.paths import DataRoot

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
#: How long a take-over waits for the writing thread. Seconds.
TAKE_OVER_WAIT = 10.0


class Store:
    """One instance's view of `local.db`. Writing needs `take_over` first, else NotOwner.

    Reads open the file read-only and raise StoreUnknown or Corrupt: "cannot be read" never means
    "empty". Without a file there is nothing, and that is known.
    """

    def __init__(self, root: DataRoot, clock: Clock | None = None) -> None:
        self._path = root.database
        self._clock = clock if clock is not None else SystemClock()
        self._writer: Writer | None = None
        self._connection: sqlite3.Connection | None = None
        self._owner: tuple[str, int] | None = None
        self.recovered: Recovered | None = None

    # --- ownership (see modeld.owner.ownership.Coordination) ---

    def stored_epoch(self) -> int:
        """The highest epoch that ever wrote here; 0 without a file, or with a corrupt or locked one.

        The lease files keep the order then. Raises StoreUnknown.
        """
        try:
            return self._read(tables.stored_epoch, 0)
        except (Corrupt, StoreBusy):
            return 0

    def take_over(self, instance: str, epoch: int) -> None:
        """Open for writing and make the owner row; see `recovered`. Blocking.

        Raises NotOwner, RootUnusable (StoreBusy while another process holds it), DiskFull.
        """
        if self._owner == (instance, epoch):
            return
        if self._writer is None:
            self._writer = Writer("store-writer")
        future = self._writer.submit(functools.partial(self._take_over, instance, epoch))
        try:
            future.result(timeout=TAKE_OVER_WAIT)
        except TimeoutError as error:
            hint = "the database does not answer; see `modeld doctor`"
            raise RootUnusable(path=str(self._path), hint=hint) from error

    def let_go(self) -> Future[None] | None:
        """Stop writing: what is queued still meets the guard, what comes later is NotOwner.

        The future ends when the file is closed, and with it every lock of ours; None where it was not open.
        """
        writer, self._writer = self._writer, None
        self._owner = None
        if writer is None:
            return None
        closed = writer.submit(self._close)
        writer.close()
        return closed

    def _take_over(self, instance: str, epoch: int) -> None:
        import sqlite3

        self._close()
        connection, notice = database.open_owner(self._path)
        try:
            recovered = _in_transaction(
                connection, lambda: tables.take_over(connection, instance, epoch, self._clock.wall())
            )
        except sqlite3.Error as error:
            connection.close()
            database.explain(error, self._path)
        except ModeldError:
            connection.close()
            raise
        self._connection, self._owner = connection, (instance, epoch)
        self.recovered = _with_notice(recovered, notice)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- writing ---

    async def write(self, change: Callable[[sqlite3.Connection, str, int], T]) -> T:
        """Run `change(connection, instance, epoch)` in the writing thread, guarded. Raises NotOwner, RootError.

        A caller that is cancelled meanwhile does not undo it.
        """
        writer, owner = self._writer, self._owner
        if writer is None or owner is None:
            raise NotOwner(owner=None)
        future = writer.submit(lambda: self._guarded(change, owner))
        return await asyncio.wrap_future(future)

    def _guarded(self, change: Callable[[sqlite3.Connection, str, int], T], owner: tuple[str, int]) -> T:
        import sqlite3

        connection = self._connection
        if connection is None:
            raise NotOwner(owner=None)

        def body() -> T:
            if not tables.is_owner(connection, *owner):
                raise NotOwner(owner=None)
            return change(connection, *owner)

        try:
            return _in_transaction(connection, body)
        except sqlite3.Error as error:
            database.explain(error, self._path)

    async def register_backend(self, name: str, config: dict[str, Any], by: str) -> None:
        """Keep a backend's configuration across owners."""
        now = self._clock.wall()
        await self.write(lambda db, _i, _e: tables.register_backend(db, name, config, by, now))

    async def claim_workspace(self, workspace: str, holder: str, ttl: float) -> WorkspaceLease:
        """Claim or renew. Raises ModelInUse (state `claimed`) while another client holds it."""
        now = self._clock.wall()
        return await self.write(lambda db, _i, _e: tables.claim_workspace(db, workspace, holder, ttl, now))

    async def release_workspace(self, workspace: str, holder: str) -> bool:
        """Give a claim back; False when this holder has none."""
        return await self.write(lambda db, _i, _e: tables.release_workspace(db, workspace, holder))

    async def open_session(self, handle: str, generation: int, client: str, model: str) -> None:
        """Note a session."""
        now = self._clock.wall()
        await self.write(lambda db, i, _e: tables.open_session(db, handle, i, generation, client, model, now))

    async def close_session(self, handle: str) -> None:
        """Forget a session."""
        await self.write(lambda db, _i, _e: tables.close_session(db, handle))

    async def begin_turn(self, client: str, model: str, conversation: str = "") -> int:
        """Note a running turn; gives its number for `end_turn`."""
        now = self._clock.wall()
        return await self.write(
            lambda db, i, e: tables.begin_turn(
                db, instance=i, epoch=e, client=client, model=model, conversation=conversation, now=now
            )
        )

    async def end_turn(self, turn: int, outcome: str) -> None:
        """A turn has ended with this finish reason or error kind."""
        now = self._clock.wall()
        await self.write(lambda db, _i, _e: tables.end_turn(db, turn, outcome, now))

    async def add_audit(self, action: str, who: str, **detail: Any) -> None:
        """Note who did what."""
        now = self._clock.wall()
        await self.write(
            lambda db, i, e: tables.add_audit(db, instance=i, epoch=e, action=action, who=who, detail=detail, now=now)
        )

    async def set_hint(self, name: str, value: str) -> None:
        """Remember a hint, such as the last active model (`tables.HINT_MODEL`)."""
        now = self._clock.wall()
        await self.write(lambda db, _i, _e: tables.set_hint(db, name, value, now))

    async def put_footprint(self, identity: str, engine: str, device: str, size: int) -> None:
        """Remember measured bytes."""
        now = self._clock.wall()
        await self.write(
            lambda db, _i, _e: tables.put_footprint(
                db, identity=identity, engine=engine, device=device, size=size, now=now
            )
        )

    async def raise_generation(self, generation: int) -> None:
        """Remember the slot generation in use."""
        await self.write(lambda db, _i, _e: tables.raise_generation(db, generation))

    # --- reading, by anybody ---

    async def read(self, query: Callable[[sqlite3.Connection], T], without_file: T) -> T:
        """Run a query read-only in a thread. Raises StoreUnknown, Corrupt."""
        return await in_thread(lambda: self._read(query, without_file))

    async def backends(self) -> dict[str, dict[str, Any]]:
        """Registered backends by name."""
        return await self.read(tables.backends, {})

    async def workspace_lease(self, workspace: str) -> WorkspaceLease | None:
        """The claim in force, or None."""
        now = self._clock.wall()
        return await self.read(lambda db: tables.workspace_lease(db, workspace, now), None)

    async def turns(self, state: str | None = None, limit: int = 50) -> list[TurnRow]:
        """The newest turns."""
        return await self.read(lambda db: tables.turns(db, state, limit), [])

    async def abandoned_turns(self) -> int:
        """How many turns ended with their owner."""
        return await self.read(tables.abandoned_turns, 0)

    async def audit(self, limit: int = 50) -> list[AuditRow]:
        """The newest audit entries."""
        return await self.read(lambda db: tables.audit(db, limit), [])

    async def hint(self, name: str) -> str | None:
        """A hint, or None."""
        return await self.read(lambda db: tables.hint(db, name), None)

    async def footprint(self, identity: str, engine: str, device: str) -> Footprint | None:
        """Measured bytes of a model."""
        return await self.read(lambda db: tables.footprint(db, identity, engine, device), None)

    async def generation(self) -> int:
        """The highest slot generation used."""
        return await self.read(tables.generation, 0)

    def _read(self, query: Callable[[sqlite3.Connection], T], without_file: T) -> T:
        import sqlite3

        connection = database.open_reader(self._path)
        if connection is None:
            return without_file
        try:
            return query(connection)
        except sqlite3.Error as error:
            database.unknown(error, self._path)
        finally:
            connection.close()


def _in_transaction(connection: sqlite3.Connection, body: Callable[[], T]) -> T:
    """All or nothing. BEGIN IMMEDIATE, so that the guard's answer holds until the commit."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = body()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _with_notice(recovered: Recovered, notice: str) -> Recovered:
    if not notice:
        return recovered
    import msgspec

    return msgspec.structs.replace(recovered, notice=notice)
