"""One look at one place, and what stays known of a place that could not be looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from shared.catalog.group import FileRecord, Found
from shared.catalog.scan import Candidate, Scan
from shared.catalog.sources import SearchFolder
from shared.system.foreign import Foreign


class Seen(msgspec.Struct, frozen=True):
    """What a look gave. `problems` and `lost`: see `Scan`; `folders`: device and inode of each that was entered."""

    found: list[Found]
    problems: list[str]
    lost: dict[str, str]
    folders: set[tuple[int, int]] = set()


def look_at(
    place: SearchFolder,
    foreign: Foreign,
    folders: Collection[tuple[int, int]],
    record: Callable[[Candidate], FileRecord],
    closed: Callable[[], bool],
) -> Seen:
    """The models of a place, each read by `record`, except in `folders`. Ends early when `closed`."""

    def once() -> Seen:
        scan, found = Scan(foreign, folders), []
        for candidate in scan.place(place):
            if closed():
                break
            found.append(Found(candidate, record(candidate)))
        return Seen(found, scan.problems, scan.lost, scan.seen)

    return foreign.walk(once)


def look_again(
    candidates: Iterable[Candidate], records: Mapping[str, FileRecord], foreign: Foreign, patience: float
) -> Seen:
    """Those of the candidates that are unchanged, with their records: files alone, no folder is walked."""

    def once() -> Seen:
        scan, found = Scan(foreign, patience=patience), []
        for stored in candidates:
            record, candidate = records.get(stored.path), scan.again(stored)
            if candidate is not None and record is not None and record.signature == candidate.signature:
                found.append(Found(candidate, record))
        return Seen(found, scan.problems, scan.lost)

    return foreign.walk(once, patience)


def kept(
    seen: Collection[Found], lost: Mapping[str, str], before: Iterable[Candidate], records: Mapping[str, FileRecord]
) -> list[Found]:
    """What was found in a place that cannot be looked at now: it stays listed, with the reason."""
    if not lost:
        return []
    there = {_key(item.candidate) for item in seen}
    found = []
    for candidate in before:
        reason = next((why for path, why in lost.items() if _below(candidate, path)), "")
        if reason and _key(candidate) not in there:
            record = records.get(candidate.path, FileRecord(path=candidate.path, signature=""))
            found.append(Found(candidate, msgspec.structs.replace(record, fault=reason)))
    return found


def _key(candidate: Candidate) -> tuple[str, str]:
    return candidate.path, candidate.group


def _below(candidate: Candidate, folder: str) -> bool:
    return any(
        path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for path in (candidate.path, candidate.group)
    )
