"""`library.cache`: what the last scan of any process found, so that a list costs milliseconds.

Any process of the user may write it and anybody can rebuild it: it is a cache and never the truth.
Layout: a magic line, the BLAKE2b of the payload in hex, then MessagePack. A file that is damaged, cut
or of another version reads as empty. Rows are valid only while their signature is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from shared.catalog.group import FileRecord
from shared.catalog.scan import Candidate
from shared.system import private

MAGIC = b"modeld-library 2\n"
MAX_BYTES = 64 * 1024 * 1024


class CacheContent(msgspec.Struct, kw_only=True):
    """Records by file, the candidates of the last pass in order, the names given so far
    (`names.path_key` and `digest_key` to name), and those that models had before, with their keys.
    """

    files: dict[str, FileRecord] = {}
    last: list[Candidate] = []
    names: dict[str, str] = {}
    former: dict[str, str] = {}


def read(path: Path) -> CacheContent:
    """The content, or an empty one when there is none that can be used."""
    try:
        data = private.read(path, MAX_BYTES)
    except OSError:
        return CacheContent()  # missing or unreadable: the scan starts from nothing
    head, digest, payload = data[: len(MAGIC)], data[len(MAGIC) : len(MAGIC) + 64], data[len(MAGIC) + 65 :]
    if head != MAGIC or hashlib.blake2b(payload, digest_size=32).hexdigest().encode() != digest:
        return CacheContent()
    try:
        return msgspec.msgpack.decode(payload, type=CacheContent)
    except msgspec.MsgspecError:
        return CacheContent()  # of another version


def write(path: Path, content: CacheContent) -> None:
    """Replace the file in one step. Raises OSError (a read-only root, a full disk)."""
    payload = msgspec.msgpack.encode(content)
    data = MAGIC + hashlib.blake2b(payload, digest_size=32).hexdigest().encode() + b"\n" + payload
    private.write(path, data)


def merged(
    ours: dict[str, FileRecord], stored: dict[str, FileRecord], gone: Callable[[str], bool]
) -> dict[str, FileRecord]:
    """Our records and those of other processes: what is read further, or has a checksum, wins.

    Files that are `gone` are dropped.
    """
    files = dict(stored)
    for path, record in ours.items():
        other = stored.get(path)
        files[path] = record
        if other is not None and other.signature == record.signature:
            if other.finished and not record.finished:
                files[path] = other
            if other.sha256 and not record.sha256:
                files[path] = msgspec.structs.replace(files[path], sha256=other.sha256)
    return {path: record for path, record in files.items() if not gone(path)}
