"""Downloads that did not end: what of them lies in the store, and how it is removed. Nothing else is touched."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec

from shared.fetch.download import mark_of
from shared.fetch.pull_lock import exclusive
from shared.protocol.api import Partial, PartialResult

SUFFIX = ".part"
#: What belongs to the download of one file: itself, its mark, the folder in which the starter is fetched.
_ENDS = (SUFFIX, f"{SUFFIX}.json", f"{SUFFIX}.wheel")


class _Busy(Exception):
    """Somebody fetches it now."""


def partials(models: Path) -> list[Partial]:
    """Every unfinished download of the store, by name. Raises OSError."""
    found: dict[str, Partial] = {}
    for name in sorted(os.listdir(models) if models.is_dir() else ()):
        end = next((end for end in _ENDS if name.startswith(".") and name.endswith(end)), "")
        target = name[1 : -len(end)] if end else ""
        if target:
            known = found.get(target, Partial(name=target))
            found[target] = msgspec.structs.replace(known, size_bytes=known.size_bytes + _bytes(models / name))
    return [_marked(models, one) for one in found.values()]


def clean(models: Path) -> PartialResult:
    """Remove every unfinished download but those that are fetched now. Raises OSError."""
    removed, busy = [], []
    for one in partials(models):
        try:
            with exclusive(models / f".{one.name}.lock", _busy, time.sleep):
                for end in _ENDS:
                    _remove(models / f".{one.name}{end}")
        except _Busy:
            busy.append(one)
            continue
        removed.append(one)
    return PartialResult(removed=removed, busy=busy, freed_bytes=sum(one.size_bytes for one in removed))


def _busy() -> None:
    raise _Busy


def _marked(models: Path, one: Partial) -> Partial:
    mark = mark_of(models / f".{one.name}{SUFFIX}")
    if mark is None:
        return one
    return msgspec.structs.replace(one, source=mark.url, total_bytes=mark.total, resumable=bool(mark.validator))


def _bytes(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_bytes(inside) for inside in path.iterdir())
    return path.lstat().st_size


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
