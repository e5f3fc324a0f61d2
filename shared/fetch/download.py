"""One file over HTTP into a temporary file beside its place: resumed, checked, and only then renamed.

Temporary names begin with a dot and end with `.part`, which no scan
takes for a model, so that a pull killed at any byte is never listed.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from shared.catalog.fingerprint import checksum
from shared.errors import DigestMismatch, DiskFull, DownloadFailed
from shared.fetch.net import RangeRefused, Retry, Wanted, hang_up, open_response, words
from shared.system import private
from shared.system.foreign import Foreign
from shared.text.nesting import decode_json

CHUNK = 256 * 1024
TRIES = 5
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
DISK_MARGIN = 64 * 1024 * 1024
MAX_DOCUMENT = 16 * 1024 * 1024
#: A file that is another one at each attempt is given up.
CHANGES = 3
_RANGE = re.compile(r"bytes (?P<start>\d{1,18})-\d{1,18}/(?P<total>\d{1,18}|\*)")
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="?next"?')


class Progress(msgspec.Struct, frozen=True):
    """Bytes done of `total` (0: unknown) in a stage: waiting, downloading, verifying or extracting."""

    stage: str
    done: int
    total: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """How a transfer reports and how it is stopped.

    `cancelled` is asked between chunks; `pause` sleeps (tests pass their own).
    """

    progress: Callable[[Progress], None]
    cancelled: Callable[[], bool]
    pause: Callable[[float], None]

    def check(self, source: str) -> None:
        """Raises DownloadFailed when the job was cancelled."""
        if self.cancelled():
            raise DownloadFailed(source=source, reason="cancelled", resumable=True)


class Mark(msgspec.Struct, kw_only=True):
    """Beside the partial file: what it is a part of. `validator` is an ETag or a date for If-Range.

    `url` is the address as it may be stored: one that was signed again is still the same file.
    """

    url: str
    validator: str = ""
    total: int = 0


def as_parts(job: Job, sizes: Sequence[int]) -> list[Job]:
    """The jobs of files that are one model: each tells how much of the whole is there. `sizes` in bytes, 0: unknown."""
    whole = sum(sizes)
    if len(sizes) < 2 or not all(sizes):
        return [job] * len(sizes)

    def part(before: int) -> Job:
        def progress(event: Progress) -> None:
            known = event.stage == "downloading"
            job.progress(msgspec.structs.replace(event, done=before + event.done, total=whole) if known else event)

        return msgspec.structs.replace(job, progress=progress)

    return [part(before) for before in accumulate((0, *sizes[:-1]))]


def part_path(target: Path) -> Path:
    """The temporary file of a target."""
    return target.with_name(f".{target.name}.part")


def download(wanted: Wanted, target: Path, job: Job) -> str:
    """Fetch into `part_path(target)` and check it; the SHA-256 in hex. The caller renames.

    What could not be resumed is not kept. Raises DownloadFailed, DigestMismatch, DiskFull.
    """
    part, source = part_path(target), wanted.source
    try:
        total = _persist(wanted, part, job)
    except BaseException:
        if _is_lost(source, part):
            discard(part)
        raise
    size = _size(part)
    if wanted.size and size != wanted.size:
        discard(part)
        reason = f"the server sent {size} bytes where {wanted.size} were announced"
        raise DownloadFailed(source=source, reason=reason, resumable=False)
    job.progress(Progress("verifying", total, total))
    return verify(part, wanted.sha256, source, job)


def _persist(wanted: Wanted, part: Path, job: Job) -> int:
    """Try until the file is whole; its length. Each attempt that gets on is a new beginning, a changed file is not."""
    tries = changes = 0
    while True:
        before = _size(part)
        job.check(wanted.source)
        try:
            with contextlib.closing(Foreign()) as calls:
                return _transfer(wanted, part, job, calls)
        except Retry as retry:
            changes += isinstance(retry, _Changed)
            tries = 1 if _size(part) > before else tries + 1
            if tries >= TRIES or changes >= CHANGES:
                raise DownloadFailed(source=wanted.source, reason=retry.reason, resumable=changes < CHANGES) from retry
            job.pause(min(LONGEST_PAUSE, max(retry.after, FIRST_PAUSE * 2**tries)))


def verify(part: Path, expected: str, source: str, job: Job) -> str:
    """The SHA-256 of a partial file; a wrong one is thrown away. Raises DigestMismatch, DownloadFailed."""
    actual = checksum(str(part), job.cancelled)
    if actual is None:
        raise DownloadFailed(source=source, reason="cancelled", resumable=True)
    if expected and actual != expected.lower().removeprefix("sha256:"):
        discard(part)
        raise DigestMismatch(expected=expected, actual=actual)
    return actual


def discard(part: Path) -> None:
    """Remove a partial file and its mark."""
    for path in (part, _mark_path(part)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def require_space(folder: Path, needed: int) -> None:
    """Raises DiskFull when `needed` bytes and a margin are not free."""
    if needed > 0 and shutil.disk_usage(folder).free < needed + DISK_MARGIN:
        raise DiskFull(path=str(folder), needed_bytes=needed + DISK_MARGIN)


def write_or_full(stream: Any, data: bytes, path: Path, still: int) -> None:
    """Write a chunk; a disk that fills up is DiskFull with the bytes `still` missing."""
    try:
        stream.write(data)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path=str(path.parent), needed_bytes=max(still, len(data)) + DISK_MARGIN) from error
        raise


def get_json(wanted: Wanted, job: Job) -> tuple[bytes, str]:
    """(a small document of 16 MiB at most, the address of its next page or ""). Raises DownloadFailed."""
    tries, source = 0, wanted.source
    while True:
        job.check(source)
        try:
            with contextlib.closing(Foreign()) as calls:
                return calls.attended(lambda: _document(wanted), lambda: job.check(source), lambda _: None)
        except Retry as retry:
            tries += 1
            if tries >= TRIES:
                raise DownloadFailed(source=source, reason=retry.reason, resumable=True) from retry
            job.pause(min(LONGEST_PAUSE, max(retry.after, FIRST_PAUSE * 2**tries)))
        except (http.client.HTTPException, OSError) as error:
            raise DownloadFailed(source=source, reason=words(error, wanted), resumable=True) from error


def _document(wanted: Wanted) -> tuple[bytes, str]:
    with open_response(wanted, {}) as response:
        data: bytes = response.read(MAX_DOCUMENT)
        return data, _next_page(wanted.url, response.headers.get("Link") or "")


def _next_page(url: str, link: str) -> str:
    """Where a `Link` header (RFC 8288) says that it goes on, on the same server only."""
    found = _NEXT.search(link)
    following = urljoin(url, found[1]) if found else ""
    here, there = urlsplit(url), urlsplit(following)
    return following if (here.scheme, here.netloc) == (there.scheme, there.netloc) else ""


# --- one attempt --------------------------------------------------------------------------------


def _transfer(wanted: Wanted, part: Path, job: Job, calls: Foreign) -> int:
    """Bring the partial file to its full length; the length. A server that is silent does not hold up a cancel."""
    source = wanted.source
    have, mark = _resumable(source, part)
    ranged = {"Range": f"bytes={have}-", "If-Range": mark.validator} if have else {}
    try:
        response = calls.attended(
            lambda: open_response(wanted, ranged), lambda: job.check(source), lambda late: late.close()
        )
    except RangeRefused:
        discard(part)
        raise Retry("the server refused to resume") from None
    with response:
        start = have if response.status == 206 else 0
        if response.status == 206:
            reason = _other_file(response, have, mark)
            if reason:
                discard(part)
                raise _Changed(reason)
        total = _total(response, start) or wanted.size
        require_space(part.parent, total - start)
        mark = Mark(url=source, validator=_validator(response), total=total)
        private.write(_mark_path(part), msgspec.json.encode(mark))
        try:
            _copy(response, part, start, total, job=job, wanted=wanted, calls=calls)
        except BaseException:
            hang_up(response)
            raise
    return total


class _Changed(Retry):
    """What the server goes on with is another file than the one that was begun."""


def _other_file(response: Any, have: int, mark: Mark) -> str:
    """Why this rest does not belong behind the `have` bytes that are here, or "": a server may ignore If-Range."""
    stated = _RANGE.fullmatch((response.headers.get("Content-Range") or "").strip())
    if stated is None or int(stated["start"]) != have:
        return "the server sent another range than asked for"
    validator = _validator(response)
    if validator and validator != mark.validator:
        return "the file changed on the server"
    if mark.total and stated["total"] not in ("*", str(mark.total)):
        return "the file on the server has another length now"
    return ""


def _total(response: Any, start: int) -> int:
    """The whole length as the server says it, 0 where it does not."""
    length = response.headers.get("Content-Length") or ""
    if length.isdigit() and int(length):
        return start + int(length)
    stated = _RANGE.fullmatch((response.headers.get("Content-Range") or "").strip())
    return int(stated["total"]) if stated is not None and stated["total"] != "*" else 0


def _validator(response: Any) -> str:
    """By what a later request knows the file: its ETag (a weak one says nothing of bytes), else its date."""
    etag: str = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    return "" if etag.startswith("W/") else etag


def _copy(response: Any, part: Path, start: int, total: int, *, job: Job, wanted: Wanted, calls: Foreign) -> None:
    done, source = start, wanted.source
    with open(part, "r+b" if start else "wb", buffering=0, opener=private.opener) as stream:
        stream.seek(start)
        stream.truncate()
        job.progress(Progress("downloading", done, total))
        while True:
            job.check(source)
            try:
                chunk = calls.attended(lambda: response.read(CHUNK), lambda: job.check(source), lambda _: None)
            except (http.client.HTTPException, OSError) as error:
                raise Retry(words(error, wanted)) from error
            if not chunk:
                break
            write_or_full(stream, chunk, part, total - done)
            done += len(chunk)
            job.progress(Progress("downloading", done, max(total, done)))
        os.fsync(stream.fileno())
    if total and done < total:
        raise Retry(f"the connection ended after {done} of {total} bytes")


def mark_of(part: Path) -> Mark | None:
    """What is known of a partial file; None where that is nothing."""
    try:
        return decode_json(_mark_path(part).read_bytes(), Mark)
    except (OSError, msgspec.MsgspecError):
        return None


def _resumable(url: str, part: Path) -> tuple[int, Mark]:
    """How many bytes of the partial file can be kept, and its mark."""
    mark = mark_of(part)
    if mark is None or mark.url != url or not mark.validator:
        return 0, mark or Mark(url=url)
    have = _size(part)
    return (have if not mark.total or have < mark.total else max(0, mark.total - 1)), mark


def _is_lost(url: str, part: Path) -> bool:
    """Whether nothing can go on with this part: it only fills the disk."""
    mark = mark_of(part)
    return mark is None or (mark.url == url and not mark.validator)


def _mark_path(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
