"""Opening `local.db`: as the owner, as a reader, and what to do with a file that is no database.

sqlite3 is imported when a database is opened, not before: starting modeld does not need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from modeld.store import schema
from shared.errors import DiskFull, ModeldError, RootUnusable
from shared.lease import disk
from shared.system import private

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS = 2.0
#: What SQLite keeps beside a database.
_BESIDE = ("-wal", "-shm", "-journal")
#: Primary SQLite result codes.
_READ_ONLY_CODES = frozenset({3, 8, 14, 23})  # PERM, READONLY, CANTOPEN, AUTH
_BUSY_CODES = frozenset({5, 6})
_FULL_CODE = 13
_CORRUPT_CODES = frozenset({11, 26})
_BUSY_HINT = "another process keeps the database locked; see `modeld doctor`"


class StoreUnknown(RootUnusable):
    """The database cannot be read now. What it holds is unknown, which is not the same as nothing."""


class StoreBusy(StoreUnknown):
    """Another process keeps the database locked, longer than any transaction of ours lasts."""


class Corrupt(ModeldError):
    """The file is no sound database."""

    kind = "store_corrupt"
    fields = ("path", "reason")
    summary = "{path} is damaged ({reason}); it is renamed and replaced when modeld next takes the lease"


def open_owner(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open for writing, migrated; a corrupt file is set aside and a new one made.

    Gives the connection (usable from any one thread at a time) and a message for people, or "".
    Raises RootUnusable (StoreBusy while another process holds it), DiskFull.
    """
    try:
        return _open_sound(path), ""
    except Corrupt as error:
        kept = set_aside(path)
        damage = f"the coordination database was damaged ({error.reason})"
        notice = f"{damage}; it was renamed to {kept.name} and a new one was created"
        return _open_sound(path), notice


def open_reader(path: Path) -> sqlite3.Connection | None:
    """Open read-only; None when there is no file. Raises StoreUnknown, Corrupt."""
    import sqlite3

    if not os.path.lexists(path):
        return None
    _refuse_odd(path)
    uri = f"file:{quote(path.as_posix())}?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        unknown(error, path)
    try:
        if schema.version_of(connection) == 0:
            connection.close()
            return None  # made this moment by an owner that has not filled it yet
    except sqlite3.Error as error:
        connection.close()
        unknown(error, path)
    return connection


def unknown(error: sqlite3.Error, path: Path) -> NoReturn:
    """Raise what a failed read means: Corrupt, or StoreUnknown."""
    if _code(error) in _CORRUPT_CODES:
        raise Corrupt(path=str(path), reason=str(error)) from error
    uid, mode = disk.owner_of(path)
    if _code(error) in _BUSY_CODES:
        raise StoreBusy(path=str(path), uid=uid, mode=mode, hint=_BUSY_HINT) from error
    raise StoreUnknown(path=str(path), uid=uid, mode=mode, hint=f"the database cannot be read now: {error}") from error


def explain(error: sqlite3.Error, path: Path) -> NoReturn:
    """Raise what a failed write means: DiskFull, Corrupt, StoreBusy or RootUnusable."""
    code = _code(error)
    uid, mode = disk.owner_of(path)
    if code == _FULL_CODE:
        raise DiskFull(path=str(path), needed_bytes=1024 * 1024, uid=uid, mode=mode, hint=str(error)) from error
    if code in _CORRUPT_CODES:
        raise Corrupt(path=str(path), reason=str(error)) from error
    if code in _BUSY_CODES:
        raise StoreBusy(path=str(path), uid=uid, mode=mode, hint=_BUSY_HINT) from error
    hint = str(error)
    if code in _READ_ONLY_CODES:
        hint = f"{error}; it must be writable by this user, or set MODELD_DATA_ROOT"
    raise RootUnusable(path=str(path), uid=uid, mode=mode, hint=hint) from error


def set_aside(path: Path) -> Path:
    """Rename a damaged file and its journal so that nothing is lost; gives the new name."""
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    for suffix in (*_BESIDE, ""):
        part = path.with_name(path.name + suffix)
        try:
            os.replace(part, kept.with_name(kept.name + suffix))
        except FileNotFoundError:
            continue
        except OSError as error:
            disk.explain(error, part)
    return kept


def _open_sound(path: Path) -> sqlite3.Connection:
    import sqlite3

    _refuse_odd(path)
    _create_private(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        explain(error, path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may lose the last rows, never the file
        connection.execute("PRAGMA foreign_keys = ON")
        checked = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if checked != "ok":
            raise Corrupt(path=str(path), reason=checked)
        _refuse_newer(connection, path)
        schema.migrate(connection)
    except sqlite3.Error as error:
        connection.close()
        explain(error, path)
    except ModeldError:
        connection.close()
        raise
    return connection


def _refuse_newer(connection: sqlite3.Connection, path: Path) -> None:
    found = schema.version_of(connection)
    if found > schema.VERSION:
        uid, mode = disk.owner_of(path)
        hint = f"it was written by a newer modeld (version {found}, this one knows {schema.VERSION}); upgrade modeld"
        raise RootUnusable(path=str(path), uid=uid, mode=mode, hint=hint)


def _refuse_odd(path: Path) -> None:
    """SQLite would wait for the writer of a FIFO, and follow a link out of the data root. Raises Corrupt."""
    for part in (path, *(path.with_name(path.name + suffix) for suffix in _BESIDE)):
        if private.is_odd(part):
            raise Corrupt(path=str(part), reason="it is not a regular file")


def _create_private(path: Path) -> None:
    """0600 before SQLite writes the first byte; its journals take over the mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        disk.explain(error, path)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
