"""The record of what we wrote into the store: one small file beside each model we pulled.

`models/.NAME.own` (JSON) stands beside `models/NAME`. Only files listed there are ever deleted by us.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from shared.system import private
from shared.text.nesting import decode_json

SUFFIX = ".own"
MAX_RECORD = 64 * 1024


class OwnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file we wrote; its size guards against deleting what somebody put in its place."""

    file: str
    source: str
    sha256: str
    size: int


def record_path(file: Path) -> Path:
    """Where the record of a store file is."""
    return file.with_name(f".{file.name}{SUFFIX}")


def write_record(file: Path, source: str, sha256: str, size: int) -> None:
    """Note that we wrote `file`. Raises OSError."""
    record = OwnRecord(file=file.name, source=source, sha256=sha256, size=size)
    private.write(record_path(file), msgspec.json.encode(record))


def read_record(file: Path) -> OwnRecord | None:
    """The record of a store file when we wrote it and it still has the size we wrote, else None."""
    try:
        with open(record_path(file), "rb") as stream:
            record = decode_json(stream.read(MAX_RECORD), OwnRecord)
        size = stored_size(file)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if record.file == file.name and record.size == size else None


def stored_size(path: Path) -> int:
    """Bytes of a store file, or of the files of a store folder. Raises OSError."""
    if path.is_dir():
        return sum(inside.stat().st_size for inside in path.iterdir() if inside.is_file())
    return path.stat().st_size


def forget(file: Path) -> None:
    """Drop the record of a file that is gone. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        record_path(file).unlink()


def own_records(models: Path) -> dict[str, OwnRecord]:
    """Every file of ours in the store, by path."""
    found: dict[str, OwnRecord] = {}
    try:
        listed = os.listdir(models)
    except OSError:
        return found  # no store yet
    for name in listed:
        if name.startswith(".") and name.endswith(SUFFIX):
            file = models / name[1 : -len(SUFFIX)]
            record = read_record(file)
            if record is not None:
                found[str(file)] = record
    return found


def write_folder_record(target: Path, written: Path, source: str) -> None:
    """Note that the folder `target` is ours, before `written` is renamed to it. Raises OSError."""
    write_record(target, source, "", stored_size(written))
