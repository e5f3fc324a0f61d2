"""Parked conversations on disk: kept through a switch of models and a restart. Off unless a budget is set.

One file a conversation under `<root>/parked/<key>/`, 0600 in folders of 0700. The key is the full resolved
identity and the content of its adapters, so a file is found only by the model that wrote it, and it says so
itself a second time. Header and content each carry their digest: a file that was cut, changed or swapped is
deleted and counts as never written. Files are the user's words as tokens: `modeld parked --clear` deletes them.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

import msgspec

from shared.catalog.identity import ResolvedIdentity
from shared.system import private

MAGIC = b"modeld parked 1\n"
SUFFIX = ".parked"
_HALF_WRITTEN = ".writing"
_PREFIX = struct.Struct("<16s32sI")  # magic, digest of the header, its length
_MOST_HEADER = 16 << 20
_PIECE = 1 << 20


class ShelfHeader(msgspec.Struct, frozen=True, kw_only=True):
    """`parts`: bytes of each part of the content. `lengths`: tokens at which each part after the first stands."""

    key: str
    model: str
    tokens: list[int]
    floor: int
    parts: list[int]
    lengths: list[int]
    digest: str


class Shelved(msgspec.Struct, frozen=True, eq=False):
    """One file that may be tried. Nothing of its content is trusted before `KvDiskCache.read`."""

    path: Path
    header: ShelfHeader


class KvDiskCache:
    """The files of one identity, and the budget of all: `limit` bytes, least recently used deleted first."""

    def __init__(self, folder: Path, identity: ResolvedIdentity, limit: int) -> None:
        """`folder` is the one of all identities. Raises OSError where it cannot be made private or an adapter read."""
        self._all = folder
        self._key = identity_key(identity)
        self._model = identity.name
        self._limit = limit
        self._own = folder / self._key[:32]
        for one in (folder, self._own):
            private.folder(one)
            _require_private(one)
        for left in self._own.glob(f"*{_HALF_WRITTEN}"):
            left.unlink(missing_ok=True)

    def look(self) -> list[Shelved]:
        """The files of this identity, the latest used first. What is no such file is deleted."""
        found = []
        for path, _, _ in sorted(files_under(self._own), key=lambda one: -one[2]):
            header = self._header(path)
            if header is None:
                self.drop(path)
            else:
                found.append(Shelved(path, header))
        return found

    def read(self, shelved: Shelved) -> list[mmap.mmap] | None:
        """The parts, checked; None (and the file deleted) where they are not what was written."""
        parts = self._parts(shelved)
        if parts is None:
            self.drop(shelved.path)
        else:
            os.utime(shelved.path)
        return parts

    def write(
        self, tokens: Sequence[int], floor: int, parts: Sequence[mmap.mmap], lengths: Sequence[int]
    ) -> Path | None:
        """Keep a conversation; None where the budget is too small for it. Raises OSError (a full disk, say)."""
        header = ShelfHeader(
            key=self._key,
            model=self._model,
            tokens=list(tokens),
            floor=floor,
            parts=[len(part) for part in parts],
            lengths=list(lengths),
            digest=_digest(parts),
        )
        encoded = msgspec.msgpack.encode(header)
        size = _PREFIX.size + len(encoded) + sum(header.parts)
        if size > self._limit or len(encoded) > _MOST_HEADER:
            return None
        trim(self._all, self._limit - size)
        path = self._own / f"{secrets.token_hex(8)}{SUFFIX}"
        half = path.with_suffix(_HALF_WRITTEN)
        try:
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file.fileno(), _PREFIX.pack(MAGIC, hashlib.sha256(encoded).digest(), len(encoded)))
                _write_all(file.fileno(), encoded)
                for part in parts:
                    _write_all(file.fileno(), part)
                os.fsync(file.fileno())
            half.replace(path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        return path

    def touch(self, path: Path) -> bool:
        """Mark one file as used now; False where it is gone."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def drop(self, path: Path) -> None:
        """Delete one file; one that is gone already is no fault."""
        path.unlink(missing_ok=True)

    def _header(self, path: Path) -> ShelfHeader | None:
        header = header_of(path)
        return header if header is not None and header.key == self._key else None

    def _parts(self, shelved: Shelved) -> list[mmap.mmap] | None:
        if self._header(shelved.path) != shelved.header:
            return None
        try:
            with _opened(shelved.path) as file:
                _, _, length = _PREFIX.unpack(_read_exactly(file.fileno(), _PREFIX.size))
                file.seek(_PREFIX.size + length)
                parts = [mmap.mmap(-1, size) for size in shelved.header.parts]
                for part in parts:
                    with memoryview(part) as view:
                        if file.readinto(view) != len(part):
                            return None
        except (OSError, EOFError):
            return None
        return parts if _digest(parts) == shelved.header.digest else None


def header_of(path: Path) -> ShelfHeader | None:
    """What a file says of itself; None where it is not whole, or no such file."""
    try:
        with _opened(path) as file:
            magic, digest, length = _PREFIX.unpack(_read_exactly(file.fileno(), _PREFIX.size))
            if magic != MAGIC or length > _MOST_HEADER:
                return None
            encoded = _read_exactly(file.fileno(), length)
            whole = os.fstat(file.fileno()).st_size
    except (OSError, EOFError):
        return None
    if hashlib.sha256(encoded).digest() != digest:
        return None
    try:
        header = msgspec.msgpack.decode(encoded, type=ShelfHeader)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    consistent = len(header.lengths) == len(header.parts) - 1 and all(part > 0 for part in header.parts)
    exact = whole == _PREFIX.size + length + sum(header.parts)
    return header if consistent and exact and header.tokens else None


def identity_key(identity: ResolvedIdentity) -> str:
    """A digest of every field and of the content of adapters and projector (files may change under one name)."""
    digest = hashlib.sha256(msgspec.json.encode(identity, order="sorted"))
    for path in (*identity.adapters, *filter(None, (identity.projector,))):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def files_under(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """(path, bytes, time of last use in ns) of all parked files below a folder."""
    for path in folder.rglob(f"*{SUFFIX}"):
        try:
            found = path.lstat()
        except OSError:
            continue  # deleted meanwhile
        yield path, found.st_size, found.st_mtime_ns


def trim(folder: Path, limit: int) -> tuple[int, int]:
    """Delete the least recently used down to `limit` bytes; how many, and their bytes."""
    held = sorted(files_under(folder), key=lambda one: one[2])
    left, count, freed = sum(size for _, size, _ in held), 0, 0
    for path, size, _ in held:
        if left <= limit:
            break
        path.unlink(missing_ok=True)
        left, count, freed = left - size, count + 1, freed + size
    return count, freed


def forget(folder: Path, model: str) -> tuple[int, int]:
    """Delete what was parked of one model; how many files, and their bytes."""
    count = freed = 0
    for path, size, _ in list(files_under(folder)):
        header = header_of(path)
        if header is not None and header.model == model:
            path.unlink(missing_ok=True)
            count, freed = count + 1, freed + size
    return count, freed


def _digest(parts: Sequence[mmap.mmap]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        with memoryview(part) as view:
            digest.update(view)
    return digest.hexdigest()


def _write_all(descriptor: int, data: bytes | mmap.mmap) -> None:
    with memoryview(data) as view:
        at = 0
        while at < len(view):
            at += os.write(descriptor, view[at : at + _PIECE])


def _read_exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(descriptor, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _opened(path: Path) -> FileIO:
    """The file itself, no link, ours and private. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    file = FileIO(descriptor, "rb")
    found = os.fstat(descriptor)
    strange = not stat.S_ISREG(found.st_mode)
    if sys.platform != "win32":
        strange = strange or found.st_uid != os.geteuid() or bool(found.st_mode & 0o077)
    if strange:
        file.close()
        raise PermissionError(f"{path} is not a private file of ours")
    return file


def _require_private(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is not a directory")
    if sys.platform != "win32" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
        raise PermissionError(f"{folder} is not a private folder of ours")
