"""The lease files of one data root: list, read, create the next epoch, rewrite one's own, sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shared import private
from shared.errors import NetworkFilesystem, RootUnusable
from shared.lease import disk
from shared.lease.netfs import network_kind
from shared.lease.policy import Mark, Sighting
from shared.lease.record import LeaseRecord, RecordUnreadable, decode_lease, encode
from shared.paths import DataRoot

_SUFFIX = ".lease"
#: Old epochs kept beside the living one, so that nobody's listing can miss them all while one is swept.
KEEP_EPOCHS = 4
#: A temporary file lives for the time of one write; one this old has lost its writer. Seconds.
KEEP_TEMPORARY = 600.0


def prepare(root: DataRoot) -> None:
    """Create the private folders. Raises NetworkFilesystem, RootUnusable (another user's, or one that others may write
    into and that cannot be narrowed), DiskFull.
    """
    kind = network_kind(root.path)
    if kind is not None:
        uid, mode = disk.owner_of(root.path)
        raise NetworkFilesystem(path=str(root.path), uid=uid, mode=mode, hint=kind)
    for folder in (root.path, root.owner, root.instances):
        try:
            private.folder(folder)
            _refuse_foreign(folder)
            if not private.narrow(folder):
                hint = "others may write there; set MODELD_DATA_ROOT to a folder of your own"
                uid, mode = disk.owner_of(folder)
                raise RootUnusable(path=str(folder), uid=uid, mode=mode, hint=hint)
            if folder != root.path and os.name == "posix" and os.stat(folder).st_mode & 0o077:
                folder.chmod(0o700)
        except OSError as error:
            disk.explain(error, folder)


def _refuse_foreign(folder: Path) -> None:
    if sys.platform == "win32":
        return
    facts = os.stat(folder)
    if facts.st_uid != os.geteuid():
        hint = f"it belongs to another user than uid {os.geteuid()}; set MODELD_DATA_ROOT to a folder of your own"
        raise RootUnusable(path=str(folder), uid=facts.st_uid, mode=f"{facts.st_mode & 0o7777:04o}", hint=hint)


class LeaseFolder:
    """`<root>/owner` and the copy for people. Raises OSError as it comes; callers explain it."""

    def __init__(self, root: DataRoot, instance: str) -> None:
        self.root = root
        self._unique = instance

    def path(self, epoch: int) -> Path:
        """The file of one ownership."""
        return self.root.owner / f"{epoch}{_SUFFIX}"

    def epochs(self) -> list[int]:
        """All epochs with a file, in no order; empty when there is no folder."""
        return list_epochs(self.root)

    def sight(self) -> Sighting | None:
        """The highest lease file. None when there has never been one.

        Raises OSError when it cannot be read: that is no statement about the owner.
        """
        return sight(self.root)

    def mark(self, epoch: int) -> Mark | None:
        """What stands in one epoch's file now, or None when it is not there."""
        try:
            return _sighting(self.path(epoch), epoch).mark
        except FileNotFoundError:
            return None

    def create(self, record: LeaseRecord) -> bool:
        """Create the record's epoch exclusively; False when somebody else has it."""
        return disk.create_exclusive(self.path(record.epoch), encode(record), self._unique)

    def rewrite(self, record: LeaseRecord) -> None:
        """Replace the file of the record's own epoch; the folder too if it was deleted."""
        try:
            disk.replace(self.path(record.epoch), encode(record), self._unique)
        except FileNotFoundError:
            private.folder(self.root.owner)
            disk.replace(self.path(record.epoch), encode(record), self._unique)

    def copy_for_people(self, record: LeaseRecord) -> None:
        """`owner.lease`: shows the newest record and decides nothing, so a failure is no failure."""
        try:
            disk.replace(self.root.owner_copy, encode(record), self._unique)
        except OSError:
            return

    def sweep(self, own_epoch: int, now: float) -> None:
        """Remove files of past epochs, but for the last few, and what writers that died left (wall `now`)."""
        old = sorted(epoch for epoch in self.epochs() if epoch < own_epoch)[: -(KEEP_EPOCHS - 1)]
        for epoch in old:
            disk.unlink(self.path(epoch))
        for folder in (self.root.owner, self.root.path):
            disk.sweep_temporary(folder, now, KEEP_TEMPORARY)


def list_epochs(root: DataRoot) -> list[int]:
    """All epochs with a lease file. Raises OSError, except that no folder means none."""
    try:
        names = os.listdir(root.owner)
    except FileNotFoundError:
        return []
    numbers = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def sight(root: DataRoot) -> Sighting | None:
    """See LeaseFolder.sight. A file that vanishes while we look was swept: look again."""
    for _ in range(3):
        epoch = max(list_epochs(root), default=0)
        if epoch == 0:
            return Sighting(epoch=0, mark=Mark(0, 0, "missing")) if root.owner_copy.exists() else None
        try:
            return _sighting(root.owner / f"{epoch}{_SUFFIX}", epoch)
        except FileNotFoundError:
            continue
    return Sighting(epoch=0, mark=Mark(0, 0, "moving"))


def _sighting(path: Path, epoch: int) -> Sighting:
    data = disk.read(path)
    try:
        record = decode_lease(data, epoch)
    except RecordUnreadable:
        facts = os.stat(path)
        return Sighting(epoch=epoch, mark=Mark(epoch, 0, f"{facts.st_mtime_ns}/{facts.st_size}"))
    detail = record.instance if record.released is None else f"{record.instance} released"
    return Sighting(epoch=epoch, mark=Mark(epoch, record.sequence, detail), record=record)
