"""The owner's record once more, outside the data root: what is left to read when the root is deleted or exchanged.

By the root's path, since whoever comes to an empty folder knows nothing else of it. In the user's runtime folder, which
nobody else may write into; best effort, because the records in the root decide wherever they stand.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from shared.endpoint.faults import FolderUnusable
from shared.endpoint.folder import make_private, problem
from shared.lease import disk, files
from shared.lease.policy import Mark, Sighting
from shared.lease.record import LeaseRecord, RecordUnreadable, decode_lease, encode
from shared.paths import DataRoot
from shared.system import private

#: A copy this old belongs to an owner that crashed long ago. Seconds by file time.
KEEP_SECONDS = 7 * 24 * 3600.0


class Trace:
    """See the module and `shared.lease.files.Copy`. `folder` is the user's own (shared.endpoint.folder)."""

    def __init__(self, folder: Path, root: DataRoot, instance: str) -> None:
        self._folder = folder / "owners"
        self._instance = instance
        self._swept = False
        spelled = os.path.normpath(root.path)
        # by the name that was given and by the one behind links: either may lead elsewhere tomorrow
        self._paths = [self._path(name) for name in dict.fromkeys((spelled, os.path.realpath(spelled)))]

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:24]}.lease"

    def sight(self) -> Sighting | None:
        """The copy with the highest epoch; one that cannot be read stands for an owner that nobody can name."""
        if not self._is_ours():
            return None
        found = [sighting for path in self._paths if (sighting := _sighting(path)) is not None]
        return max(found, key=lambda sighting: sighting.above, default=None)

    def write(self, record: LeaseRecord) -> None:
        """Keep `record`, or take the copy away once its owner let go where everybody can read it."""
        try:
            make_private(self._folder.parent)
            make_private(self._folder)
            for path in self._paths:
                self._write(path, record)
            if not self._swept:
                self._swept = True
                _sweep(self._folder, time.time())
        except (OSError, FolderUnusable):
            return  # the records in the root decide

    def _write(self, path: Path, record: LeaseRecord) -> None:
        other = _read(path)
        if other is not None and other.instance != self._instance and other.epoch > record.epoch:
            return  # a successor's
        if record.released is not None and record.released.reason != "lost":
            disk.unlink(path)
        else:
            disk.replace(path, encode(record), self._instance)

    def _is_ours(self) -> bool:
        """A folder that another user may write into could name any process of ours to be ended."""
        try:
            return problem(self._folder.parent) is None and problem(self._folder) is None
        except OSError:
            return False


def _read(path: Path) -> LeaseRecord | None:
    try:
        return decode_lease(disk.read(path), None)
    except (OSError, RecordUnreadable):
        return None


def _sighting(path: Path) -> Sighting | None:
    try:
        data = disk.read(path)
    except private.NotRegular:
        return Sighting(epoch=0, mark=Mark(0, 0, "outside, odd"), outside=True)
    except OSError:
        return None
    try:
        record = decode_lease(data, None)
    except RecordUnreadable:
        try:
            return Sighting(epoch=0, mark=Mark(0, 0, f"outside {files.standing_of(path)}"), outside=True)
        except OSError:
            return None
    mark = files.mark_of(record, 0)
    return Sighting(epoch=0, above=record.epoch, mark=mark, record=record, outside=True)


def _sweep(folder: Path, now: float) -> None:
    with os.scandir(folder) as entries:
        old = [entry.path for entry in entries if now - entry.stat(follow_symlinks=False).st_mtime > KEEP_SECONDS]
    for path in old:
        disk.unlink(Path(path))
