"""Atomic file operations on the data root, with the platforms' differences and typed errors.

Nothing here knows what a lease is.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from shared.diagnosis.exhausted import exhausted
from shared.errors import DiskFull, ModeldError, RootUnusable
from shared.system import private

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: A file stands where a folder has to be.
_IN_THE_WAY = frozenset({errno.EEXIST, errno.ENOTDIR})
#: What link(2) says where the filesystem has no hard links (FAT, some FUSE), or a policy forbids them.
_NO_LINKS = frozenset({
    errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EIO, errno.EXDEV,
    errno.EINVAL,
})  # fmt: skip
#: Windows: access denied, sharing violation, lock violation. Somebody reads the file at this moment.
_IN_USE = frozenset({5, 32, 33})
#: A record has about one kilobyte. What is longer is read as far as this and says nothing.
MOST_BYTES = 64 * 1024
#: Writers meet what stands there as readers do: no link is followed, no FIFO is waited for.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_TRIES = 8
_FIRST_PAUSE = 0.001


def explain(error: OSError, path: Path) -> NoReturn:
    """Raise the typed error for a failed operation below the data root: DiskFull, RootUnusable, ResourcesExhausted."""
    raise explained(error, path) from error


def explained(error: OSError, path: Path) -> ModeldError:
    """See `explain`."""
    full = exhausted(error)
    if full is not None:
        return full
    if error.errno in _FULL:
        return DiskFull(path=str(path), needed_bytes=1024 * 1024, hint="a record cannot be written")
    uid, mode = owner_of(path)
    me = os.geteuid() if hasattr(os, "geteuid") else None
    if error.errno in _IN_THE_WAY:
        where = next((part for part in (path, *path.parents) if _is_no_folder(part)), path)
        hint = f"{where} is not a directory; move it away, or set MODELD_DATA_ROOT"
        return RootUnusable(path=str(path), uid=uid, mode=mode, hint=hint)
    reason = error.strerror or str(error)
    hint = f"{reason}; it must be writable by this user{'' if me is None else f' (uid {me})'}, or set MODELD_DATA_ROOT"
    return RootUnusable(path=str(path), uid=uid, mode=mode, hint=hint)


def _is_no_folder(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except OSError:
        return False


def owner_of(path: Path) -> tuple[int | None, str | None]:
    """Uid and octal mode of the path or its nearest existing parent; None where that cannot be seen."""
    for candidate in (path, *path.parents):
        try:
            facts = os.stat(candidate)
        except OSError:
            continue
        return facts.st_uid, f"{facts.st_mode & 0o7777:04o}"
    return None, None


def read(path: Path) -> bytes:
    """The file's first MOST_BYTES. Raises FileNotFoundError, NotRegular, or OSError when it cannot be read."""
    for attempt in range(_TRIES):
        try:
            return private.read(path, MOST_BYTES)
        except PermissionError as error:
            _pause_if_in_use(error, attempt)
    raise AssertionError("unreachable: the last attempt raises")


def create_exclusive(path: Path, data: bytes, unique: str) -> bool:
    """Create `path` with all of `data` at once; False when it exists. `unique` names the temporary file.

    By hard link, which shows the file only when it is whole; by rename on Windows, which does not
    replace there; where the filesystem has no links by O_EXCL, whose reader may see an empty file.
    """
    temporary = path.with_name(f".{path.name}.{unique}.tmp")
    _write_new(temporary, data, sync=True)
    try:
        if sys.platform == "win32":
            return _rename_new(temporary, path)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _create_directly(path, data)
        return True
    finally:
        _unlink_quietly(temporary)


def replace(path: Path, data: bytes, unique: str) -> None:
    """Put `data` in the place of `path`, atomically; on a full disk, within the file that is there.

    `data` is text that trailing blanks do not change.
    """
    temporary = path.with_name(f".{path.name}.{unique}.tmp")
    try:
        _write_new(temporary, data, sync=False)
        _replace(temporary, path)
    except OSError as error:
        _unlink_quietly(temporary)
        if error.errno in _FULL and _overwrite(path, data):
            return
        raise


def unlink(path: Path) -> bool:
    """Remove a file of ours; whether it is gone now."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep_temporary(folder: Path, now: float, age: float) -> None:
    """Remove temporary files that are `age` seconds old at wall second `now`: their writers died."""
    try:
        with os.scandir(folder) as entries:
            old = [
                entry.path
                for entry in entries
                if entry.name.startswith(".") and entry.name.endswith(".tmp") and now - entry.stat().st_mtime > age
            ]
    except OSError:
        return  # one was just removed, or the folder is not ours to list: the next sweep finds the rest
    for path in old:
        unlink(Path(path))


def _write_new(path: Path, data: bytes, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600)
    try:
        _write_all(descriptor, data)
        if sync:
            os.fsync(descriptor)  # after a power cut an epoch is there whole or not at all
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _create_directly(path: Path, data: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _rename_new(temporary: Path, path: Path) -> bool:
    for attempt in range(_TRIES):
        try:
            os.rename(temporary, path)
        except FileExistsError:
            return False
        except PermissionError as error:
            if path.exists():
                return False
            _pause_if_in_use(error, attempt)
        else:
            return True
    raise AssertionError("unreachable: the last attempt raises")


def _replace(temporary: Path, path: Path) -> None:
    for attempt in range(_TRIES):
        try:
            os.replace(temporary, path)
        except PermissionError as error:
            _pause_if_in_use(error, attempt)
        else:
            return


def _overwrite(path: Path, data: bytes) -> bool:
    """Write over a file that is long enough: needs no new block on most filesystems. For padded text.

    A reader may see a mixture; that is unparseable and counts as held.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | _SAFE)
    except OSError:
        return False
    try:
        length, text = os.fstat(descriptor).st_size, data.rstrip()
        if length <= len(text):
            return False
        os.write(descriptor, text.ljust(length - 1) + b"\n")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _pause_if_in_use(error: PermissionError, attempt: int) -> None:
    """Sleep a little longer each time, 127 ms in all; anything else than a file in use is raised.

    `open` on Windows goes through the C runtime, which turns every code above into EACCES and keeps no winerror.
    """
    code = getattr(error, "winerror", None)
    in_use = code in _IN_USE or (sys.platform == "win32" and code is None and error.errno == errno.EACCES)
    if not in_use or attempt == _TRIES - 1:
        raise error
    time.sleep(_FIRST_PAUSE * 2**attempt)


def _unlink_quietly(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # swept later with the other left-overs
