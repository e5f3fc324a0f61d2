"""Presence: one static record for each running instance, and the secret that its clients need.

Written before anybody is informed of the endpoint, ended in order by the instance itself, swept by other
instances once its process is proven dead. Blocking.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from shared.lease import disk, policy
from shared.lease.files import boot_id
from shared.lease.place import name_of
from shared.lease.process.identity import booted, liveness
from shared.lease.record import (
    Ended,
    Identity,
    PresenceRecord,
    RecordUnreadable,
    decode_presence,
    encode,
)
from shared.paths import DataRoot

_SUFFIX = ".json"
#: A sign of life neither follows a link nor waits for the reader of a FIFO.
_NO_WAIT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
TOKEN_SUFFIX = ".token"
TOKEN_BYTES = 32
#: At most this many records are read at one look, newest first.
MOST_RECORDS = 64
#: Ended or dead records are kept this long for bridges that ask what happened. Seconds by file time.
KEEP_SECONDS = 600.0
#: One that nobody can prove dead is kept this long after its last sign of life. Seconds by file time.
KEEP_SILENT = 24 * 3600.0
#: And at most this many of them, so that a daemon that dies again and again hides nobody from a look.
KEEP_DEAD = 16


class Presence:
    """The record and token of this instance."""

    def __init__(self, root: DataRoot, instance: str) -> None:
        self._root = root
        self._path = root.instances / f"{instance}{_SUFFIX}"
        self._instance = instance
        self.token_file = root.instances / f"{instance}{TOKEN_SUFFIX}"
        self.record: PresenceRecord | None = None
        self._token = b""

    def make_token(self) -> str:
        """A new secret in a 0600 file beside the record; give it to the server before publishing. Raises OSError."""
        token = os.urandom(TOKEN_BYTES).hex()
        self._token = token.encode("ascii")
        disk.replace(self.token_file, self._token, self._instance)
        return token

    def publish(self, record: PresenceRecord) -> None:
        """Write the record, or rewrite it (another endpoint), about the root as it stands now. Raises OSError."""
        record = msgspec.structs.replace(record, root=name_of(self._root.path))
        disk.replace(self._path, encode(record), self._instance)
        self.record = record

    def pulse(self) -> None:
        """A sign of life for those who cannot see this process (another pid namespace, another machine): a file of
        no content whose time moves. The record itself stays as it is. Best effort: the next one follows.
        """
        path = pulse_file(self._root, self._instance)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | _NO_WAIT, 0o600))
            os.utime(path)
        except OSError:
            return

    def intact(self) -> bool:
        """Whether record and token are on disk as they were written: a damaged one hides a living instance too."""
        record = self.record
        if record is None or record.root != name_of(self._root.path):
            return False
        return _holds(self._path, encode(record)) and self.token_intact()

    def token_intact(self) -> bool:
        """Whether the token is on disk as it was written."""
        return _holds(self.token_file, self._token)

    def withdraw(self, reason: str, at: float) -> None:
        """Mark the record as ended at wall second `at` and remove the token. Best effort: a leftover is swept."""
        disk.unlink(self.token_file)
        disk.unlink(pulse_file(self._root, self._instance))
        if self.record is None:
            return
        try:
            self.publish(msgspec.structs.replace(self.record, ended=Ended(reason=reason, at=at)))
        except OSError:
            disk.unlink(self._path)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return disk.read(path) == content
    except OSError:
        return False


def pulse_file(root: DataRoot, instance: str) -> Path:
    """Where an instance shows that it lives. Its name is hidden, so that pollers of the folder do not wake for it."""
    return root.instances / f".{instance}.pulse"


def read_token(path: Path | str) -> str:
    """The secret of an instance. Raises OSError."""
    return disk.read(Path(path)).decode("ascii", "replace").strip()


def list_records(root: DataRoot) -> list[PresenceRecord]:
    """The newest MOST_RECORDS readable records, oldest instance first. Raises OSError but for a missing folder."""
    found = []
    here = name_of(root.path)
    for path in _newest(root):
        try:
            record = decode_presence(disk.read(path))
        except (OSError, RecordUnreadable):
            continue  # just swept, or being damaged: its instance is not counted on
        if not policy.is_elsewhere(record, here, boot_id()):
            found.append(record)
    return sorted(found, key=lambda record: record.age_rank)


def illegible(root: DataRoot, now: float, silent: float) -> list[str]:
    """Instances whose record cannot be read and who showed a sign of life within `silent` seconds of wall `now`.

    One that lives puts its record back at its next look. Raises OSError but for a missing folder.
    """
    found = []
    for path in _newest(root):
        try:
            decode_presence(disk.read(path))
        except RecordUnreadable:
            if abs(now - _modified(pulse_file(root, path.stem))) < silent:
                found.append(path.stem)
        except OSError:
            continue  # just swept
    return found


def is_dead(record: PresenceRecord, me: Identity) -> bool:
    """Whether the instance ended in order or its process is proven dead."""
    if record.ended is not None:
        return True
    alive = liveness(record.pid, record.start_token) if policy.can_prove(record.identity, me) else "unknown"
    return policy.death_proven(record.identity, me, alive, seen=record.started, booted=booted())


def rank_of(instance: str, root: DataRoot, me: Identity, *, without: str = "") -> int | None:
    """This instance's place among the living ones, oldest first from 0; None when it has no record.

    `without` is the owner that has just gone: it does not stand in anybody's way.
    """
    living = [record for record in list_records(root) if record.instance != without and not is_dead(record, me)]
    names = [record.instance for record in living]
    return names.index(instance) if instance in names else None


def sweep(root: DataRoot, me: Identity, now: float) -> list[PresenceRecord]:
    """Remove what dead instances left: tokens at once, records after KEEP_SECONDS (wall `now`) or beyond KEEP_DEAD.

    One that nobody can prove dead goes KEEP_SILENT after its last sign of life; if it lives after all, it puts its
    record back at its next look.
    Gives the dead ones seen, newest first. Raises OSError when the folder cannot be listed.
    """
    dead = []
    here = name_of(root.path)
    for path in _newest(root, most=None):
        try:
            record = decode_presence(disk.read(path))
        except (OSError, RecordUnreadable):
            if not 0 <= now - _modified(path) < KEEP_SECONDS:
                disk.unlink(path)
            continue
        pulse = pulse_file(root, record.instance)
        if not is_dead(record, me) and not policy.is_elsewhere(record, here, boot_id()):
            if not policy.can_prove(record.identity, me) and KEEP_SILENT < now - _modified(pulse) < float("inf"):
                for left in (path, pulse, root.instances / f"{record.instance}{TOKEN_SUFFIX}"):
                    disk.unlink(left)
            continue
        dead.append(record)
        disk.unlink(pulse)
        disk.unlink(root.instances / f"{record.instance}{TOKEN_SUFFIX}")
        if len(dead) > KEEP_DEAD or not 0 <= now - _modified(path) < KEEP_SECONDS:
            disk.unlink(path)
    disk.sweep_temporary(root.instances, now, KEEP_SECONDS)
    return dead


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")


def _newest(root: DataRoot, most: int | None = MOST_RECORDS) -> list[Path]:
    try:
        with os.scandir(root.instances) as entries:
            timed = [
                (_time(entry), entry.path)
                for entry in entries
                if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
    return [Path(path) for _, path in sorted(timed, reverse=True)[:most]]


def _time(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0
