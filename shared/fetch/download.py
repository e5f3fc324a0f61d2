"""One file over HTTP into a temporary file beside its place: resumed, checked, and only then renamed.

The standard library does it (urllib): the base install brings no HTTP client, and a download needs
none of what the bigger ones offer. Temporary names begin with a dot and end with `.part`, which no scan
takes for a model, so that a pull killed at any byte is never listed.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from shared.catalog.fingerprint import checksum
from shared.errors import DigestMismatch, DiskFull, DownloadFailed
from shared.system import private
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner, Secret, address_secrets, proxy_secrets
from shared.version import __version__

CHUNK = 256 * 1024
TIMEOUT = 30.0
TRIES = 5
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
DISK_MARGIN = 64 * 1024 * 1024
#: Of an address, what is sent as it stands; a blank or a letter outside ASCII is percent-encoded.
_ADDRESS_SAFE = "%/:=&?~#+!$,;'@()*[]"
#: Characters of another's words that a reason takes.
_REASON_SHOWN = 300
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch. `sha256` and `size` are checked when given; `authorization` goes to this host only."""

    url: str
    sha256: str = ""
    size: int = 0
    authorization: Secret | None = None

    @property
    def clean(self) -> Cleaner:
        """For every text of this transfer that is shown or stored."""
        known = [*address_secrets(self.url), *proxy_secrets(os.environ)]
        return Cleaner(known if self.authorization is None else known + self.authorization.known())

    @property
    def source(self) -> str:
        """The address as it may be shown and stored."""
        return self.clean(self.url)


class _Mark(msgspec.Struct, kw_only=True):
    """Beside the partial file: what it is a part of. `validator` is an ETag or a date for If-Range.

    `url` is the address as it may be stored: one that was signed again is still the same file.
    """

    url: str
    validator: str = ""
    total: int = 0


def part_path(target: Path) -> Path:
    """The temporary file of a target."""
    return target.with_name(f".{target.name}.part")


def download(wanted: Wanted, target: Path, job: Job) -> str:
    """Fetch into `part_path(target)` and check it; the SHA-256 in hex. The caller renames.

    Raises DownloadFailed, DigestMismatch, DiskFull.
    """
    part, tries, source = part_path(target), 0, wanted.source
    while True:
        before = _size(part)
        job.check(source)
        try:
            total = _transfer(wanted, part, job)
            break
        except _Retry as retry:
            tries = 1 if _size(part) > before else tries + 1
            if tries >= TRIES:
                raise DownloadFailed(source=source, reason=retry.reason, resumable=True) from retry
            job.pause(min(LONGEST_PAUSE, max(retry.after, FIRST_PAUSE * 2**tries)))
    size = _size(part)
    if wanted.size and size != wanted.size:
        discard(part)
        reason = f"the server sent {size} bytes where {wanted.size} were announced"
        raise DownloadFailed(source=source, reason=reason, resumable=False)
    job.progress(Progress("verifying", total, total))
    return verify(part, wanted.sha256, source, job)


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


def get_json(wanted: Wanted, job: Job) -> bytes:
    """A small document (16 MiB at most). Raises DownloadFailed."""
    tries, source = 0, wanted.source
    while True:
        job.check(source)
        try:
            with _open(wanted, {}) as response:
                data: bytes = response.read(16 * 1024 * 1024)
                return data
        except _Retry as retry:
            tries += 1
            if tries >= TRIES:
                raise DownloadFailed(source=source, reason=retry.reason, resumable=True) from retry
            job.pause(min(LONGEST_PAUSE, max(retry.after, FIRST_PAUSE * 2**tries)))
        except (http.client.HTTPException, OSError) as error:
            raise DownloadFailed(source=source, reason=_words(error, wanted.clean), resumable=True) from error


# --- one attempt --------------------------------------------------------------------------------


class _Retry(Exception):
    """Worth another attempt after `after` seconds."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


def _transfer(wanted: Wanted, part: Path, job: Job) -> int:
    """Bring the partial file to its full length; the length."""
    source = wanted.source
    have, mark = _resumable(source, part)
    ranged = {"Range": f"bytes={have}-", "If-Range": mark.validator} if have else {}
    try:
        response = _open(wanted, ranged)
    except _RangeRefused:
        discard(part)
        raise _Retry("the server refused to resume") from None
    with response:
        start = have if response.status == 206 and _starts_at(response, have) else 0
        if response.status == 206 and start != have:
            discard(part)
            raise _Retry("the server sent another range than asked for")
        total = start + int(response.headers.get("Content-Length") or 0)
        if total == start:
            total = wanted.size
        require_space(part.parent, total - start)
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        mark = _Mark(url=source, validator="" if validator.startswith("W/") else validator, total=total)
        private.write(_mark_path(part), msgspec.json.encode(mark))
        _copy(response, part, start, total, job=job, wanted=wanted)
    return total


def _copy(response: Any, part: Path, start: int, total: int, *, job: Job, wanted: Wanted) -> None:
    done, source = start, wanted.source
    with open(part, "r+b" if start else "wb", buffering=0, opener=private.opener) as stream:
        stream.seek(start)
        stream.truncate()
        job.progress(Progress("downloading", done, total))
        while True:
            job.check(source)
            try:
                chunk = response.read(CHUNK)
            except (http.client.HTTPException, OSError) as error:
                raise _Retry(_words(error, wanted.clean)) from error
            if not chunk:
                break
            write_or_full(stream, chunk, part, total - done)
            done += len(chunk)
            job.progress(Progress("downloading", done, max(total, done)))
        os.fsync(stream.fileno())
    if total and done < total:
        raise _Retry(f"the connection ended after {done} of {total} bytes")


def _resumable(url: str, part: Path) -> tuple[int, _Mark]:
    """How many bytes of the partial file can be kept, and its mark."""
    try:
        mark = decode_json(_mark_path(part).read_bytes(), _Mark)
    except (OSError, msgspec.MsgspecError):
        return 0, _Mark(url=url)  # nothing known of the part: from the start
    if mark.url != url or not mark.validator:
        return 0, mark
    have = _size(part)
    return (have if not mark.total or have < mark.total else max(0, mark.total - 1)), mark


def _starts_at(response: Any, have: int) -> bool:
    content_range = response.headers.get("Content-Range") or ""
    return bool(content_range.startswith(f"bytes {have}-"))


class _RangeRefused(Exception):
    """416: what we have is no part of what is there now."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http nor to a password, and takes secrets to no other host."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        usable = new.scheme in ("http", "https") and "@" not in new.netloc and new.port != 0
        if not usable or (old.scheme == "https" and new.scheme != "https"):
            fp.close()
            raise self._refused(newurl)
        follow = super().redirect_request(req, fp, code, msg, headers, newurl)
        if follow is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            follow.remove_header("Authorization")
        return follow

    def http_error_302(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """One redirect, of any kind. Raises DownloadFailed for a target that is no address."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise self._refused(headers.get("Location") or "nowhere") from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def _refused(self, target: str) -> DownloadFailed:
        shown = self._wanted.clean(target.partition("?")[0])[:_REASON_SHOWN]
        return DownloadFailed(source=self._wanted.source, reason=f"refused a redirect to {shown}", resumable=False)


def _open(wanted: Wanted, ranged: Mapping[str, str]) -> Any:
    """The response. Raises DownloadFailed, _Retry, _RangeRefused."""
    headers = {"User-Agent": f"modeld/{__version__}", "Accept-Encoding": "identity", **ranged}
    if wanted.authorization is not None:
        headers["Authorization"] = wanted.authorization.reveal()
    clean = wanted.clean
    try:
        request = urllib.request.Request(quote(wanted.url, safe=_ADDRESS_SAFE), headers=headers)  # noqa: S310 - http(s)
        opener = urllib.request.build_opener(_Redirects(wanted))
        return opener.open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and ranged:
                raise _RangeRefused from error
            if error.code in _TEMPORARY:
                raise _Retry(_status_words(error.code), _retry_after(error)) from error
            reason = _status_words(error.code)
            raise DownloadFailed(source=wanted.source, reason=reason, resumable=False) from error
    except (urllib.error.URLError, OSError) as error:
        raise _Retry(_words(error, clean)) from error
    except http.client.InvalidURL as error:
        raise DownloadFailed(source=wanted.source, reason=_words(error, clean), resumable=False) from error
    except http.client.HTTPException as error:
        raise _Retry(_words(error, clean)) from error
    except ValueError as error:  # an address that no request can carry; the text quotes it
        raise DownloadFailed(source=wanted.source, reason="its address cannot be used", resumable=False) from error


def _status_words(code: int) -> str:
    known = {
        401: "it needs a login (401); set HF_TOKEN for Hugging Face",
        403: "access was refused (403); accept the model's licence on its page and set HF_TOKEN",
        404: "there is no such file (404)",
        410: "the file is gone (410)",
        429: "too many requests (429); try again later",
        503: "the server is overloaded (503); try again later",
    }
    if 300 <= code < 400:
        return f"its redirect could not be followed ({code})"
    return known.get(code, f"the server answered {code} {http.client.responses.get(code, '')}".rstrip())


def _retry_after(error: urllib.error.HTTPError) -> float:
    value = error.headers.get("Retry-After") or ""
    return float(value) if value.isdigit() else 0.0


def _words(error: BaseException, clean: Cleaner) -> str:
    reason = getattr(error, "reason", None) or error
    return clean(str(getattr(reason, "strerror", None) or reason or type(error).__name__))[:_REASON_SHOWN]


def _mark_path(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
