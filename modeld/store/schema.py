"""The tables of `local.db` and how an older file becomes a current one.

One script per version; `PRAGMA user_version` counts those that ran. Scripts are never changed, only
added. Times are wall seconds, for people and for ages across processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE owner (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        instance TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        since REAL NOT NULL
    ) STRICT;
    CREATE TABLE slot (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        generation INTEGER NOT NULL
    ) STRICT;
    INSERT INTO slot VALUES (1, 0);
    CREATE TABLE backends (
        name TEXT PRIMARY KEY,
        config TEXT NOT NULL,
        registered_by TEXT NOT NULL,
        registered REAL NOT NULL
    ) STRICT;
    CREATE TABLE workspace_leases (
        workspace TEXT PRIMARY KEY,
        holder TEXT NOT NULL,
        granted REAL NOT NULL,
        ttl REAL NOT NULL
    ) STRICT;
    CREATE TABLE sessions (
        handle TEXT PRIMARY KEY,
        instance TEXT NOT NULL,
        generation INTEGER NOT NULL,
        client TEXT NOT NULL,
        model TEXT NOT NULL,
        opened REAL NOT NULL
    ) STRICT;
    CREATE TABLE turns (
        id INTEGER PRIMARY KEY,
        instance TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        client TEXT NOT NULL,
        model TEXT NOT NULL,
        conversation TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('active', 'ended', 'abandoned')),
        outcome TEXT NOT NULL,
        began REAL NOT NULL,
        ended REAL
    ) STRICT;
    CREATE INDEX turns_by_state ON turns (state);
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        instance TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        action TEXT NOT NULL,
        who TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
    CREATE TABLE hints (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL,
        at REAL NOT NULL
    ) STRICT;
    CREATE TABLE footprints (
        identity TEXT NOT NULL,
        engine TEXT NOT NULL,
        device TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        measured REAL NOT NULL,
        PRIMARY KEY (identity, engine, device)
    ) STRICT;
    """,
)
VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """How many scripts ran on this file."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def migrate(connection: sqlite3.Connection) -> None:
    """Run the scripts that this file lacks, each in a transaction of its own with its number."""
    for number in range(version_of(connection), VERSION):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;")
