"""Conversations on disk: `<root>/bridge.db`, written by one thread that nobody waits for unless they ask to.

SQLite is imported in that thread, so that starting a bridge costs nothing. Every event is one row, committed as soon
as the thread gets to it (WAL, so that a killed process loses nothing that was committed). A conversation that cannot
be read whole is shown as far as it goes and never spoils the others.

One process writes a conversation: it holds a claim (pid, start token, who, expiry by the wall clock).
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec

from acp_bridge.conversations import database
from acp_bridge.conversations.database import Listed
from acp_bridge.conversations.events import Saved, TurnEnded
from acp_bridge.conversations.state import Conversation
from shared.errors import ConversationBusy, DiskFull, ModeldError, RootError, RootUnusable
from shared.system import private

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
#: A claim whose process can be seen to live never expires; this is for the ones that cannot be seen (another host or
#: pid namespace), and long, since each renewal wakes an idle process.
CLAIM_TTL = 600.0
CLAIM_RENEW = 240.0
#: Conversations in which nobody said anything are forgotten after a day.
EMPTY_KEPT_S = 86_400.0
DAY_S = 86_400.0
#: How long the end of the process waits for the last writes.
CLOSE_LIMIT_S = 0.7
#: What SQLite calls a full disk, and what a person should free at least.
SQLITE_FULL = 13
NEEDED_BYTES = 1024 * 1024


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes: this process, proven by its start token, and the editor's name for people."""

    pid: int
    token: str
    holder: str


class Store:
    """The shell around the database. All SQL runs in one thread, in the order it was asked for."""

    def __init__(self, path: Path, same_process: Callable[[int, str], bool]) -> None:
        self._path = path
        self._same_process = same_process
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._db: sqlite3.Connection | None = None
        self._failed: ModeldError | None = None
        #: What could not be written for want of room or rights, by conversation and place (-1: its row).
        self._owed: dict[tuple[str, int], Callable[[sqlite3.Connection], Any]] = {}
        self.damaged: list[str] = []

    # --- thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the database is opened there. Safe to call twice."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="conversations", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        if self._db is not None:
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        """The connection, opened at first use. Raises RootUnusable; a corrupt file is set aside."""
        if self._db is not None:
            return self._db
        import sqlite3

        private.folder(self._path.parent)
        private.narrow(self._path.parent)
        try:
            if private.is_odd(self._path):  # SQLite would wait for the writer of a FIFO
                raise sqlite3.DatabaseError("it is not a regular file")
            self._db = database.connect(self._path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise _unusable(self._path, error) from error
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            self.damaged.append(f"the conversation database was damaged; it was renamed to {aside.name}")
            self._db = database.connect(self._path)
        return self._db

    def writable(self) -> bool:
        """Whether a conversation could be saved now, by the rights of the file or of the folder that it would be in."""
        there = self._path
        while not there.exists() and there != there.parent:
            there = there.parent
        return os.access(there, os.W_OK)

    def _post(self, work: Callable[[sqlite3.Connection], Any], owed: tuple[str, int] | None = None) -> None:
        """Run `work` in the thread and forget it; a failure is kept and reported by `flush`.

        What is `owed` to a conversation is tried again, before the next that is, until there is room for it.
        """

        def job() -> None:
            import sqlite3

            try:
                db = self._open()
                if owed is not None:
                    self._pay(db)
                work(db)
            except Exception as error:  # the thread goes on, whatever one job did
                if owed is not None and isinstance(error, (sqlite3.OperationalError, OSError, RootError)):
                    self._owed[owed] = work
                else:
                    self._failed = error if isinstance(error, ModeldError) else _unusable(self._path, error)

        self.start()
        self._jobs.put(job)

    async def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the thread, after everything posted before, and give its result."""
        token = anyio.lowlevel.current_token()
        done = anyio.Event()
        outcome: list[T | BaseException] = []

        def job() -> None:
            try:
                outcome.append(work(self._open()))
            except ModeldError as error:
                outcome.append(error)
            except Exception as error:  # who asked is informed, and the thread goes on
                outcome.append(_unusable(self._path, error))
            try:
                anyio.from_thread.run_sync(done.set, token=token)
            except RuntimeError:
                return  # the loop has ended; nobody waits any more

        self.start()
        self._jobs.put(job)
        await done.wait()
        value = outcome[0]
        if isinstance(value, BaseException):
            raise value
        return value

    def _pay(self, db: sqlite3.Connection) -> None:
        """Write what is owed. Raises where that still cannot be done."""
        import sqlite3

        for key, work in list(self._owed.items()):
            try:
                work(db)
            except sqlite3.IntegrityError:
                pass  # its conversation has been deleted meanwhile
            del self._owed[key]

    async def pay(self) -> None:
        """Wait until all that conversations are owed is on disk. Raises why it cannot be written."""
        await self._ask(self._pay)

    async def flush(self) -> None:
        """Wait until everything posted so far is on disk; raises what still cannot be written, or went wrong since."""
        await self.pay()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Write what is queued, bounded in time, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(CLOSE_LIMIT_S)

    # --- conversations -----------------------------------------------------------------------

    def save(self, conversation: Conversation) -> None:
        """Write the row of the conversation (not its events)."""
        row = database.row_of(conversation)
        self._post(lambda db: database.upsert(db, row), (conversation.id, -1))

    def put(self, conversation: str, place: int, event: Saved) -> None:
        """Write the event at its place; writing the same place again replaces it (text that grows)."""
        body = database.encoded(event)
        row = (conversation, place, body)
        self._post(lambda db: db.execute("insert or replace into events values(?, ?, ?)", row), (conversation, place))

    async def load(self, conversation: str) -> Conversation | None:
        """The conversation with its events in order, or None."""
        return await self._ask(lambda db: database.load(db, conversation))

    async def newest_turns(self, model: str) -> list[TurnEnded]:
        """How the last turns of this model ended, the newest first."""
        return await self._ask(lambda db: database.newest_turns(db, model))

    async def list(self, cwd: str | None, after: tuple[float, str] | None, keep: set[str]) -> list[Listed]:
        """The page after the cursor, newest first. Empty ones are left out unless named in `keep`."""
        return await self._ask(lambda db: database.page(db, cwd, after, keep))

    async def delete(self, conversation: str) -> None:
        """Forget it. Deleting what is not there succeeds."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("delete from conversations where id = ?", (conversation,))
            db.execute("delete from claims where conversation = ?", (conversation,))

        await self._ask(work)

    def sweep(self, now: float, keep: AbstractSet[str], *, days: float = 0.0, count: int = 0) -> None:
        """Forget conversations in which nobody ever said anything, after a day; and what is older than `days`, or
        beyond the newest `count`, where those are not 0. Never one that is open here (`keep`) or in another process.
        """
        self._post(lambda db: self._sweep(db, now, frozenset(keep), days, count))

    def _sweep(self, db: sqlite3.Connection, now: float, keep: AbstractSet[str], days: float, count: int) -> None:
        db.execute("begin immediate")  # so that nobody opens one between the look and the deletion
        try:
            nobody = Claimant(pid=0, token="", holder="")
            claims = db.execute("select conversation, pid, token, holder, expires from claims").fetchall()
            kept = keep | {row[0] for row in claims if not self._claim_free(row[1:], nobody, now)}
            database.forget_empty(db, now - EMPTY_KEPT_S, kept)
            if days:
                database.forget_older(db, now - days * DAY_S, kept)
            if count:
                database.forget_beyond(db, count, kept)
            db.execute("delete from claims where conversation not in (select id from conversations)")
            db.execute("commit")
        except BaseException:
            db.execute("rollback")
            raise

    # --- picks -------------------------------------------------------------------------------

    def remember(self, workspace: str, model: str, now: float) -> None:
        """What was picked last in this workspace."""
        self._post(lambda db: db.execute("insert or replace into picks values(?, ?, ?)", (workspace, model, now)))

    async def remembered(self, workspace: str) -> str:
        """The last pick in this workspace, else "" ."""

        def work(db: sqlite3.Connection) -> str:
            row = db.execute("select model from picks where workspace = ?", (workspace,)).fetchone()
            return str(row[0]) if row else ""

        return await self._ask(work)

    # --- claims ------------------------------------------------------------------------------

    async def claim(self, conversation: str, claimant: Claimant, now: float, *, take_over: bool = False) -> None:
        """Become the one writer. Raises ConversationBusy naming the editor that holds it."""
        await self._ask(lambda db: self._claim(db, conversation, claimant, now, take_over))

    def claim_new(self, conversation: Conversation, claimant: Claimant, now: float) -> None:
        """Write the row of a conversation that was just made, and claim it; nobody else can know it yet."""
        self.save(conversation)
        self._post(lambda db: self._claim(db, conversation.id, claimant, now, True))

    def _claim(
        self, db: sqlite3.Connection, conversation: str, claimant: Claimant, now: float, take_over: bool
    ) -> None:
        db.execute("begin immediate")
        try:
            row = db.execute(
                "select pid, token, holder, expires from claims where conversation = ?", (conversation,)
            ).fetchone()
            if row is not None and not take_over and not self._claim_free(row, claimant, now):
                raise ConversationBusy(opened_in=row[2])
            values = (conversation, claimant.pid, claimant.token, claimant.holder, now + CLAIM_TTL)
            db.execute("insert or replace into claims values(?, ?, ?, ?, ?)", values)
        except ConversationBusy:
            db.execute("rollback")
            raise
        db.execute("commit")

    def _claim_free(self, row: tuple[Any, ...], claimant: Claimant, now: float) -> bool:
        pid, token, _, expires = row
        ours = (pid, token) == (claimant.pid, claimant.token)
        # an expiry far in the future is a clock that was set back, not a claim that lasts
        expired = not now <= expires <= now + CLAIM_TTL
        return ours or expired or not self._same_process(pid, token)

    async def holds(self, conversation: str, claimant: Claimant) -> bool:
        """Whether the claim is still ours (another editor may have taken the conversation over)."""

        def work(db: sqlite3.Connection) -> bool:
            row = db.execute("select pid, token from claims where conversation = ?", (conversation,)).fetchone()
            return row is None or tuple(row) == (claimant.pid, claimant.token)

        return await self._ask(work)

    def renew(self, claimant: Claimant, now: float) -> None:
        """Move the expiry of every claim of this process."""
        self._post(
            lambda db: db.execute(
                "update claims set expires = ? where pid = ? and token = ?",
                (now + CLAIM_TTL, claimant.pid, claimant.token),
            )
        )

    def release(self, conversation: str | None, claimant: Claimant) -> None:
        """Give up one claim, or with None all of this process."""
        self._post(
            lambda db: db.execute(
                "delete from claims where pid = ? and token = ? and (? is null or conversation = ?)",
                (claimant.pid, claimant.token, conversation, conversation),
            )
        )


def _unusable(path: Path, error: Exception) -> ModeldError:
    """Why the file cannot be used, with what there is to know about it."""
    from shared.lease import disk

    full = getattr(error, "sqlite_errorcode", 0) & 0xFF == SQLITE_FULL
    if full or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return DiskFull(path=str(path), needed_bytes=NEEDED_BYTES)
    if isinstance(error, OSError):
        return disk.explained(error, path)
    uid, mode = disk.owner_of(path)
    hint = f"{error}; it must be writable by this user, or set MODELD_DATA_ROOT"
    return RootUnusable(path=str(path), uid=uid, mode=mode, hint=hint)
