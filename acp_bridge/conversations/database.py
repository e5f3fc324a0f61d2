"""The tables of `<root>/bridge.db`, and the SQL of conversations. Runs in the store's thread; knows no clock."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acp_bridge.conversations.events import Saved, TurnEnded
from acp_bridge.conversations.state import MODES, Conversation
from shared.errors import RootUnusable
from shared.text.nesting import decode_json

if TYPE_CHECKING:
    import sqlite3

PAGE = 50
BUSY_TIMEOUT_S = 2.0

#: One step for each version of the tables, the first from nothing. A step is never changed once it was released.
STEPS = (
    """
create table conversations(
  id text primary key, cwd text not null, roots text not null, title text not null, model text not null,
  mode text not null, thinking text not null, dropped integer not null,
  created real not null, updated real not null
) strict;
create index conversations_updated on conversations(updated desc, id);
create table events(
  conversation text not null references conversations(id) on delete cascade,
  place integer not null, body blob not null, primary key(conversation, place)
) strict, without rowid;
create table claims(
  conversation text primary key, pid integer not null, token text not null, holder text not null,
  expires real not null
) strict;
create table picks(workspace text primary key, model text not null, updated real not null) strict;
""",
    "alter table conversations add column tools text not null default '';",
)
SCHEMA = len(STEPS)
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Saved] = msgspec.json.Decoder(Saved)
_TURN_DECODER = msgspec.json.Decoder(TurnEnded)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the list of conversations."""

    id: str
    cwd: str
    roots: list[str]
    title: str
    updated: float


def connect(path: Path) -> sqlite3.Connection:
    """Open, and bring older tables to this version. Raises RootUnusable for a newer one, sqlite3's errors."""
    import os
    import sqlite3

    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
        db.execute("pragma foreign_keys = on")
        if _version(db) > SCHEMA:
            raise RootUnusable(path=str(path), hint="written by a newer version; upgrade this one")
        if _version(db) < SCHEMA:
            _migrate(db)
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("pragma user_version").fetchone()[0])


def _migrate(db: sqlite3.Connection) -> None:
    """All missing steps in one transaction: a process killed in the middle leaves the older tables whole."""
    db.execute("begin immediate")
    try:
        for step in STEPS[_version(db) :]:  # looked at again: another bridge may have done it meanwhile
            for statement in step.split(";"):
                db.execute(statement)
        db.execute(f"pragma user_version = {SCHEMA}")
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise


def encoded(event: Saved) -> bytes:
    """An event as it stands in the table."""
    return _ENCODER.encode(event)


def row_of(conversation: Conversation) -> tuple[Any, ...]:
    """The conversation's own row."""
    roots = _ENCODER.encode(conversation.roots).decode()
    return (
        conversation.id, conversation.cwd, roots, conversation.title, conversation.model, conversation.mode,
        conversation.thinking, conversation.dropped, conversation.created, conversation.updated,
        conversation.tools,
    )  # fmt: skip


def upsert(db: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    """Write the row of `row_of`."""
    db.execute(
        "insert into conversations values(?,?,?,?,?,?,?,?,?,?,?) on conflict(id) do update set cwd=excluded.cwd,"
        " roots=excluded.roots, title=excluded.title, model=excluded.model, mode=excluded.mode,"
        " thinking=excluded.thinking, dropped=excluded.dropped, updated=excluded.updated, tools=excluded.tools",
        row,
    )


def load(db: sqlite3.Connection, conversation: str) -> Conversation | None:
    """The conversation with its events in order, as far as they can be read."""
    row = db.execute("select * from conversations where id = ?", (conversation,)).fetchone()
    if row is None:
        return None
    events: list[Saved] = []
    for (body,) in db.execute("select body from events where conversation = ? order by place", (conversation,)):
        try:
            events.append(_DECODER.decode(body))
        except (msgspec.MsgspecError, RecursionError):
            continue  # written by a newer version or damaged: the rest is still worth showing
    return Conversation(
        id=row[0], cwd=row[1], roots=_roots(row[2]), title=row[3], model=row[4],
        mode=row[5] if row[5] in MODES else "ask", thinking=row[6], dropped=row[7],
        created=row[8], updated=row[9], tools=row[10], events=events,
    )  # fmt: skip


def _roots(text: str) -> list[str]:
    try:
        return decode_json(text, list[str])
    except msgspec.MsgspecError:
        return []


def newest_turns(db: sqlite3.Connection, model: str) -> list[TurnEnded]:
    """How the last turns of this model ended, the newest first; from its newest conversations only."""
    rows = db.execute(
        "select body from events join (select id, updated from conversations where model = ? order by updated desc"
        ' limit 8) on id = conversation where cast(body as text) like \'{"event":"ended"%\''
        " order by updated desc, place desc limit 40",
        (model,),
    )
    turns: list[TurnEnded] = []
    for (body,) in rows:
        try:
            turns.append(_TURN_DECODER.decode(body))
        except msgspec.MsgspecError:
            continue  # written by a newer version or damaged: it tells nothing
    return turns


def page(
    db: sqlite3.Connection, cwd: str | None, after: tuple[float, str] | None, keep: AbstractSet[str]
) -> list[Listed]:
    """The page after the cursor, newest first. Empty conversations are left out unless named in `keep`."""
    updated, last = after if after is not None else (float("inf"), "")
    marks = ",".join("?" * len(keep))
    rows = db.execute(
        "select id, cwd, roots, title, updated from conversations where (? is null or cwd = ?)"  # noqa: S608  marks only
        " and (updated < ? or (updated = ? and id > ?))"
        f" and (id in ({marks}) or exists (select 1 from events where conversation = conversations.id))"
        f" order by updated desc, id limit {PAGE}",
        (cwd, cwd, updated, updated, last, *sorted(keep)),
    )
    return [Listed(id=r[0], cwd=r[1], roots=_roots(r[2]), title=r[3], updated=r[4]) for r in rows]


def forget_empty(db: sqlite3.Connection, before: float, keep: AbstractSet[str]) -> None:
    """Conversations untouched since `before` in which nobody ever said anything."""
    _delete(db, "updated < ? and not exists (select 1 from events where conversation = conversations.id)", before, keep)


def forget_older(db: sqlite3.Connection, before: float, keep: AbstractSet[str]) -> None:
    """Conversations untouched since `before`."""
    _delete(db, "updated < ?", before, keep)


def forget_beyond(db: sqlite3.Connection, count: int, keep: AbstractSet[str]) -> None:
    """All but the newest `count` conversations."""
    newest = "select id from conversations order by updated desc, id limit ?"
    _delete(db, f"id not in ({newest})", count, keep)


def _delete(db: sqlite3.Connection, which: str, value: float, keep: AbstractSet[str]) -> None:
    marks = ",".join("?" * len(keep))
    sql = f"delete from conversations where {which} and id not in ({marks})"  # noqa: S608  marks and our own words
    db.execute(sql, (value, *sorted(keep)))
