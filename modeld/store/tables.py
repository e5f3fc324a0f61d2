"""The statements, one function each. They run on an open connection, inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from modeld.store.rows import AuditRow, Footprint, Recovered, TurnRow, WorkspaceLease
from shared.errors import ModelInUse, NotOwner

if TYPE_CHECKING:
    import sqlite3

#: Rows kept of what only grows.
KEEP_TURNS = 1000
KEEP_AUDIT = 2000
HINT_MODEL = "active_model"


# --- the owner row ---


def stored_epoch(connection: sqlite3.Connection) -> int:
    """The highest epoch that ever wrote here, 0 for none."""
    row = connection.execute("SELECT epoch FROM owner").fetchone()
    return row[0] if row is not None else 0


def is_owner(connection: sqlite3.Connection, instance: str, epoch: int) -> bool:
    """Whether this ownership may write."""
    found = connection.execute("SELECT 1 FROM owner WHERE instance = ? AND epoch = ?", (instance, epoch))
    return found.fetchone() is not None


def take_over(connection: sqlite3.Connection, instance: str, epoch: int, now: float) -> Recovered:
    """Become the one who writes: active turns become abandoned, sessions are void. Raises NotOwner."""
    row = connection.execute("SELECT instance, epoch FROM owner").fetchone()
    if row is not None and row[1] >= epoch and row != (instance, epoch):
        raise NotOwner(owner={"instance": row[0], "endpoint": ""})
    connection.execute(
        "INSERT INTO owner VALUES (1, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET "
        "instance = excluded.instance, epoch = excluded.epoch, since = excluded.since",
        (instance, epoch, now),
    )
    abandoned = connection.execute(
        "UPDATE turns SET state = 'abandoned', ended = ?, outcome = 'owner_lost' WHERE state = 'active' AND epoch < ?",
        (now, epoch),
    ).rowcount
    connection.execute("DELETE FROM sessions WHERE instance <> ?", (instance,))
    return Recovered(
        generation=generation(connection),
        abandoned=abandoned,
        backends=backends(connection),
        hint_model=hint(connection, HINT_MODEL),
    )


def generation(connection: sqlite3.Connection) -> int:
    """The highest slot generation used."""
    found: int = connection.execute("SELECT generation FROM slot").fetchone()[0]
    return found


def raise_generation(connection: sqlite3.Connection, value: int) -> None:
    """Remember a generation; it never falls."""
    connection.execute("UPDATE slot SET generation = max(generation, ?)", (value,))


# --- coordination ---


def backends(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """Registered backends by name."""
    rows = connection.execute("SELECT name, config FROM backends ORDER BY name")
    return {name: msgspec.json.decode(config) for name, config in rows}


def register_backend(connection: sqlite3.Connection, name: str, config: dict[str, Any], by: str, now: float) -> None:
    """Add or replace a backend's configuration."""
    connection.execute(
        "INSERT INTO backends VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "config = excluded.config, registered_by = excluded.registered_by, registered = excluded.registered",
        (name, msgspec.json.encode(config).decode(), by, now),
    )


def claim_workspace(
    connection: sqlite3.Connection, workspace: str, holder: str, ttl: float, now: float
) -> WorkspaceLease:
    """Claim or renew for `ttl` seconds. Raises ModelInUse (state `claimed`) while another holds it."""
    current = workspace_lease(connection, workspace, now)
    if current is not None and current.holder != holder:
        message = f"the workspace is claimed by {current.holder} for {current.remaining_s:.0f} s more"
        raise ModelInUse(message, state="claimed", holder=current.holder)
    connection.execute("INSERT OR REPLACE INTO workspace_leases VALUES (?, ?, ?, ?)", (workspace, holder, now, ttl))
    return WorkspaceLease(workspace=workspace, holder=holder, remaining_s=ttl)


def release_workspace(connection: sqlite3.Connection, workspace: str, holder: str) -> bool:
    """Give a claim back; False when this holder has none."""
    deleted = connection.execute("DELETE FROM workspace_leases WHERE workspace = ? AND holder = ?", (workspace, holder))
    return deleted.rowcount > 0


def workspace_lease(connection: sqlite3.Connection, workspace: str, now: float) -> WorkspaceLease | None:
    """The claim in force at wall second `now`. A clock set back by more than the ttl ends a claim too."""
    row = connection.execute(
        "SELECT holder, granted, ttl FROM workspace_leases WHERE workspace = ?", (workspace,)
    ).fetchone()
    if row is None or abs(now - row[1]) >= row[2]:
        return None
    return WorkspaceLease(workspace=workspace, holder=row[0], remaining_s=min(row[2], row[1] + row[2] - now))


def open_session(
    connection: sqlite3.Connection, handle: str, instance: str, generation: int, client: str, model: str, now: float
) -> None:
    """Note a session, for status; the session itself lives in the owner."""
    connection.execute(
        "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", (handle, instance, generation, client, model, now)
    )


def close_session(connection: sqlite3.Connection, handle: str) -> None:
    """Forget a session."""
    connection.execute("DELETE FROM sessions WHERE handle = ?", (handle,))


# --- turns ---


def begin_turn(
    connection: sqlite3.Connection,
    *,
    instance: str,
    epoch: int,
    client: str,
    model: str,
    conversation: str,
    now: float,
) -> int:
    """Note a running turn; gives its number."""
    cursor = connection.execute(
        "INSERT INTO turns (instance, epoch, client, model, conversation, state, outcome, began) "
        "VALUES (?, ?, ?, ?, ?, 'active', '', ?)",
        (instance, epoch, client, model, conversation, now),
    )
    number = cursor.lastrowid or 0
    connection.execute("DELETE FROM turns WHERE id <= ? AND state <> 'active'", (number - KEEP_TURNS,))
    return number


def end_turn(connection: sqlite3.Connection, turn: int, outcome: str, now: float) -> None:
    """A turn came to its end; one that was abandoned stays so."""
    connection.execute(
        "UPDATE turns SET state = 'ended', outcome = ?, ended = ? WHERE id = ? AND state = 'active'",
        (outcome, now, turn),
    )


def turns(connection: sqlite3.Connection, state: str | None, limit: int) -> list[TurnRow]:
    """The newest turns, or those of one state."""
    rows = connection.execute(
        "SELECT id, instance, epoch, client, model, conversation, state, outcome, began, ended FROM turns "
        "WHERE ? IS NULL OR state = ? ORDER BY id DESC LIMIT ?",
        (state, state, limit),
    )
    names = TurnRow.__struct_fields__
    return [TurnRow(**dict(zip(names, row, strict=True))) for row in rows]


def abandoned_turns(connection: sqlite3.Connection) -> int:
    """How many turns ended with their owner."""
    found: int = connection.execute("SELECT count(*) FROM turns WHERE state = 'abandoned'").fetchone()[0]
    return found


# --- audit, hints, footprints ---


def add_audit(
    connection: sqlite3.Connection,
    *,
    instance: str,
    epoch: int,
    action: str,
    who: str,
    detail: dict[str, Any],
    now: float,
) -> None:
    """Note who did what. Never prompts, file contents or tokens."""
    cursor = connection.execute(
        "INSERT INTO audit (at, instance, epoch, action, who, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (now, instance, epoch, action, who, msgspec.json.encode(detail).decode()),
    )
    connection.execute("DELETE FROM audit WHERE id <= ?", ((cursor.lastrowid or 0) - KEEP_AUDIT,))


def audit(connection: sqlite3.Connection, limit: int) -> list[AuditRow]:
    """The newest entries, newest first."""
    rows = connection.execute("SELECT at, instance, action, who, detail FROM audit ORDER BY id DESC LIMIT ?", (limit,))
    return [
        AuditRow(at=at, instance=instance, action=action, who=who, detail=msgspec.json.decode(detail))
        for at, instance, action, who, detail in rows
    ]


def set_hint(connection: sqlite3.Connection, name: str, value: str, now: float) -> None:
    """Remember something that helps and is never trusted."""
    connection.execute("INSERT OR REPLACE INTO hints VALUES (?, ?, ?)", (name, value, now))


def hint(connection: sqlite3.Connection, name: str) -> str | None:
    """A hint, or None."""
    row = connection.execute("SELECT value FROM hints WHERE name = ?", (name,)).fetchone()
    return row[0] if row is not None else None


def put_footprint(
    connection: sqlite3.Connection, *, identity: str, engine: str, device: str, size: int, now: float
) -> None:
    """Remember what a resident model took, in bytes."""
    connection.execute(
        "INSERT OR REPLACE INTO footprints VALUES (?, ?, ?, ?, ?)", (identity, engine, device, size, now)
    )


def footprint(connection: sqlite3.Connection, identity: str, engine: str, device: str) -> Footprint | None:
    """What was measured for this identity on this device: by this engine version, else by the newest other."""
    row = connection.execute(
        "SELECT bytes, engine, measured FROM footprints WHERE identity = ? AND device = ? "
        "ORDER BY engine = ? DESC, measured DESC LIMIT 1",
        (identity, device, engine),
    ).fetchone()
    return Footprint(bytes=row[0], exact=row[1] == engine, measured=row[2]) if row is not None else None
