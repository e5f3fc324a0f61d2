"""The lease files of one data root: list, read, create the next epoch, rewrite one's own, sweep."""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from shared.errors import NetworkFilesystem, RootUnusable
from shared.lease import disk, policy
from shared.lease.netfs import network_kind
from shared.lease.place import Place, PlaceLost, name_of
from shared.lease.policy import Mark, Sighting
from shared.lease.process import identity
from shared.lease.record import LeaseRecord, RecordUnreadable, decode_lease, encode
from shared.paths import DataRoot
from shared.system import private

_SUFFIX = ".lease"
#: An epoch as we write it: no sign, no leading zero, and far below what SQLite's integers hold.
MOST_EPOCH = 10**15 - 1
_NAME = re.compile(r"[1-9][0-9]{0,14}\.lease")
#: Numbers tried for a free name where other things than records stand under the next ones.
_MOST_SKIPPED = 1000
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


class Copy(Protocol):
    """Where an owner keeps its record outside the data root: see modeld.owner.trace."""

    def sight(self) -> Sighting | None:
        """The copy as a sighting `outside`, with its epoch in `above`; None when there is none."""
        ...

    def write(self, record: LeaseRecord) -> None:
        """Keep `record`. Best effort."""
        ...


class LeaseFolder:
    """`<root>/owner`, the copy for people, and the copy outside. Raises OSError as it comes; callers explain it.

    From `create` to `leave` it holds one ownership: it writes only while the folders and the file are those it made.
    """

    def __init__(self, root: DataRoot, instance: str, copy: Copy | None = None) -> None:
        self.root = root
        self._unique = instance
        self._copy = copy
        self._place: Place | None = None
        self._written: tuple[bytes, bytes] = (b"", b"")

    def path(self, epoch: int) -> Path:
        """The file of one ownership."""
        return self.root.owner / f"{epoch}{_SUFFIX}"

    def epochs(self) -> list[int]:
        """All epochs with a file, in no order; empty when there is not a directory."""
        return list_epochs(self.root)

    def sight(self) -> Sighting | None:
        """The highest lease file. None when there has never been one.

        Raises OSError when it cannot be read: that is no statement about the owner.
        """
        return sight(self.root)

    def sight_outside(self, found: Sighting | None) -> Sighting | None:
        """The copy outside, as a sighting at the epoch of `found`, where it knows better than that one."""
        copy = self._copy.sight() if self._copy is not None else None
        if copy is None or not policy.contradicts(copy, found):
            return None
        epoch = found.epoch if found is not None else 0
        return msgspec.structs.replace(copy, epoch=epoch, mark=msgspec.structs.replace(copy.mark, epoch=epoch))

    def epoch_outside(self) -> int:
        """The epoch of the copy outside, 0 without one."""
        copy = self._copy.sight() if self._copy is not None else None
        return copy.above if copy is not None else 0

    def mark(self, judged: Sighting) -> Mark | None:
        """What stands now where `judged` was seen, or None when it is not there."""
        if judged.outside:
            copy = self._copy.sight() if self._copy is not None else None
            return msgspec.structs.replace(copy.mark, epoch=judged.epoch) if copy is not None else None
        if judged.epoch == 0 or judged.mark.detail.startswith(_MISSING):
            return judged.mark
        try:
            return _sighting(self.path(judged.epoch), judged.epoch, name_of(self.root.path)).mark
        except FileNotFoundError:
            return None

    def free_above(self, epoch: int) -> int:
        """The first number above `epoch` under which nothing odd stands. Raises OSError when there is none."""
        for number in range(epoch + 1, min(epoch + _MOST_SKIPPED, MOST_EPOCH) + 1):
            if not private.is_odd(self.path(number)):
                return number
        raise OSError(0, f"no epoch is free above {epoch}; move {self.root.owner} away", str(self.root.owner))

    def create(self, record: LeaseRecord) -> LeaseRecord | None:
        """Create the record's epoch exclusively, about this root; None when somebody else has it."""
        self.leave()
        place = Place(self.root.path, self.root.owner)
        record = msgspec.structs.replace(record, root=name_of(self.root.path))
        data = encode(record)
        made = False
        try:
            made = disk.create_exclusive(self.path(record.epoch), data, self._unique)
        finally:
            if not made:
                place.close()
        self._place, self._written = (place, (data, data)) if made else (None, self._written)
        return record if made else None

    def rewrite(self, record: LeaseRecord) -> None:
        """Replace the file of our own epoch. Raises PlaceLost when it, or its folder, is not the one we made."""
        self.check(record.epoch)
        data = encode(record)
        self._written = (self._written[0], data)  # either may stand there if the write fails
        try:
            disk.replace(self.path(record.epoch), data, self._unique)
        except OSError:
            self.check(record.epoch)
            raise
        self._written = (data, data)
        self.check(record.epoch)

    def check(self, epoch: int) -> None:
        """Raises PlaceLost when the folders are not the ones we took, or the file holds what we did not write."""
        assert self._place is not None, "nothing was created"
        self._place.check()
        path = self.path(epoch)
        try:
            found = disk.read(path).rstrip()
        except FileNotFoundError as error:
            raise PlaceLost(f"{path} has been removed") from error
        except private.NotRegular as error:
            raise PlaceLost(f"{path} has been replaced") from error
        if found not in (self._written[0].rstrip(), self._written[1].rstrip()):
            raise PlaceLost(f"{path} was written by somebody else")

    def leave(self) -> None:
        """The ownership is over: hold the folders no more."""
        place, self._place = self._place, None
        if place is not None:
            place.close()

    def copy_for_people(self, record: LeaseRecord) -> None:
        """`owner.lease`: shows the newest record and decides nothing, so a failure is no failure."""
        try:
            disk.replace(self.root.owner_copy, encode(record), self._unique)
        except OSError:
            pass  # the copy outside is written all the same
        self.copy_outside(record)

    def copy_outside(self, record: LeaseRecord) -> None:
        """For those who find the root emptied or exchanged."""
        if self._copy is not None:
            self._copy.write(record)

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
        with os.scandir(root.owner) as entries:
            return [
                int(entry.name.removesuffix(_SUFFIX))
                for entry in entries
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def odd_entries(root: DataRoot) -> list[str]:
    """Names in `owner/` that look like leases and are none, for the doctor. Raises OSError but for no folder."""
    try:
        with os.scandir(root.owner) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.name.endswith(_SUFFIX)
                and not (_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False))
            )
    except FileNotFoundError:
        return []


def sight(root: DataRoot) -> Sighting | None:
    """The highest lease file. A file that vanishes while we look was swept: look again. Raises OSError."""
    for _ in range(3):
        epoch = max(list_epochs(root), default=0)
        if epoch == 0:
            return Sighting(epoch=0, mark=Mark(0, 0, _MISSING)) if os.path.lexists(root.owner_copy) else None
        try:
            return _sighting(root.owner / f"{epoch}{_SUFFIX}", epoch, name_of(root.path))
        except (FileNotFoundError, private.NotRegular):
            continue
    return Sighting(epoch=0, mark=Mark(0, 0, f"{_MISSING} and moving"))


#: How a mark says that there is no record where there was one.
_MISSING = "missing"


def _sighting(path: Path, epoch: int, here: str) -> Sighting:
    data = disk.read(path)
    try:
        record = decode_lease(data, epoch)
    except RecordUnreadable:
        return Sighting(epoch=epoch, mark=Mark(epoch, 0, standing_of(path)))
    elsewhere = policy.is_elsewhere(record, here, boot_id())
    mark = mark_of(record, epoch)
    return Sighting(epoch=epoch, mark=mark, record=None if elsewhere else record, elsewhere=elsewhere)


def mark_of(record: LeaseRecord, epoch: int) -> Mark:
    """What must stand still of a record that can be read."""
    detail = record.instance if record.released is None else f"{record.instance} released"
    return Mark(epoch, record.sequence, detail)


def standing_of(path: Path) -> str:
    """What must stand still of a file that cannot be read. Raises OSError."""
    facts = os.stat(path, follow_symlinks=False)
    return f"{facts.st_mtime_ns}/{facts.st_size}"


@functools.cache
def boot_id() -> str:
    """This boot of this machine, "" where nobody can say."""
    return identity.current().boot_id
