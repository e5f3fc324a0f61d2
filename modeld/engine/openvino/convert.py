"""GGUF to IR, once for each file and engine version, in a cache of our own.

The engine writes its IR beside the GGUF it is given, so it is given a link in a folder of ours, or a
file with the weights that it cannot read exactly requantised. The folder gets its name only when all
is written and described; what does not match its description is recreated. Only folders that bear our
description are ever removed, and the work of processes that are gone.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from modeld.engine.openvino.gguf_support import inexact_types
from modeld.engine.openvino.library import Library, reason_of
from modeld.engine.openvino.requantise import Progress, requantise
from modeld.engine.openvino.tokenizer_limit import lift_limit
from shared.catalog.advertised.gguf_exactness import requantised_bytes
from shared.catalog.fingerprint import fingerprint
from shared.catalog.formats.gguf import Header
from shared.errors import DiskFull, ModelLoadFailed
from shared.lease.process.identity import liveness, start_token
from shared.system import private
from shared.text.nesting import decode_json

DESCRIPTION = "conversion.json"
#: Raised when converted models must be recreated.
VERSION = 2
_FILES = (
    "openvino_model.xml",
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
)
_SOURCE = "model.gguf"
_WORK = re.compile(r"\.(?P<pid>\d+)(?:-(?P<token>\w*))?\.tmp\Z")
_ABANDONED_S = 6 * 3600.0


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished folder holds: who made it, out of what, and the digest of its files together."""

    version: int
    runtime: str
    source: str
    source_size: int
    digest: str


def converted(
    library: Library,
    source: Path,
    digest: str,
    cache: Path,
    name: str,
    header: Header,
    progress: Progress = lambda done, of: None,
) -> tuple[Path, bool]:
    """The IR folder of a GGUF file, and whether it had to be made. `progress` hears of what is requantised.

    Raises ModelLoadFailed at stage `weights`, DiskFull, and what `progress` raises to give it up.
    """
    if found := conversion_of(library, source, digest, cache):
        return found, False
    folder = _place_of(source, digest, cache)
    private.folder(cache)
    sweep(cache, library.digest())
    work = cache / _work_name(folder.name)
    shutil.rmtree(work, ignore_errors=True)
    try:
        need_room(cache, source, header)
        work.mkdir(mode=0o700)
        _convert(library, _readable(source, work, name, header, progress), name)
        return _place(work, folder, library.digest(), source, name), True
    finally:
        shutil.rmtree(work, ignore_errors=True)


def conversion_of(library: Library, source: Path, digest: str, cache: Path) -> Path | None:
    """The finished folder of a GGUF file, None where it has to be made (or `source` is none)."""
    folder = _place_of(source, digest, cache)
    return folder if is_whole(folder, library.digest(), source) else None


def _place_of(source: Path, digest: str, cache: Path) -> Path:
    return cache / re.sub(r"[^A-Za-z0-9._-]", "_", digest or source.name)


def is_whole(folder: Path, runtime: str, source: Path) -> bool:
    """Whether a folder is a finished conversion of this file by this engine, unchanged since."""
    try:
        found = decode_json((folder / DESCRIPTION).read_bytes(), Conversion)
        return (
            found.version == VERSION
            and found.runtime == runtime
            and found.source_size == source.stat().st_size
            and found.digest == _digest(folder)
        )
    except (OSError, msgspec.MsgspecError):
        return False  # missing, unreadable or foreign: recreated


def sweep(cache: Path, runtime: str, now: float | None = None) -> list[str]:
    """Remove conversions of other engine versions or of files that are gone, and abandoned work; their names."""
    removed = []
    for folder in cache.iterdir():
        if _is_abandoned(folder, now) if folder.name.endswith(".tmp") else _is_stale(folder, runtime):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
    return removed


def forget(cache: Path, sources: Sequence[str]) -> tuple[list[str], int]:
    """Remove the conversions of these files: their folders, and the bytes they took."""
    removed, freed = [], 0
    for description in cache.glob(f"*/{DESCRIPTION}"):
        folder = description.parent
        try:
            found = decode_json(description.read_bytes(), Conversion)
        except (OSError, msgspec.MsgspecError):
            continue  # not described by us: not ours to remove
        if found.source in sources:
            freed += sum(each.stat().st_size for each in folder.iterdir())
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(str(folder))
    return removed, freed


def _work_name(stem: str) -> str:
    """Names the process that works there, so that what a killed one left is known for that at once."""
    token = re.sub(r"[^A-Za-z0-9]", "_", start_token(os.getpid()) or "")
    return f"{stem}.{os.getpid()}-{token}.tmp"


def _is_abandoned(folder: Path, now: float | None) -> bool:
    found = _WORK.search(folder.name)
    if found is not None and liveness(int(found["pid"]), "") == "gone":
        return True
    if found is not None and (token := start_token(int(found["pid"]))) and found["token"]:
        return re.sub(r"[^A-Za-z0-9]", "_", token) != found["token"]
    try:
        return (time.time() if now is None else now) - folder.stat().st_mtime > _ABANDONED_S
    except OSError:
        return False  # its process has just finished with it


def _is_stale(folder: Path, runtime: str) -> bool:
    try:
        found = decode_json((folder / DESCRIPTION).read_bytes(), Conversion)
    except (OSError, msgspec.MsgspecError):
        return False  # not described by us: not ours to remove
    return found.runtime != runtime or found.version != VERSION or not Path(found.source).exists()


def need_room(cache: Path, source: Path, header: Header) -> None:
    """Raises DiskFull: an IR takes about as much as the file it is made of, beside which lies what is requantised."""
    private.folder(cache)
    table = header.tensors
    beside = requantised_bytes(table.bytes_by_type) if table is not None and inexact_types(header) else 0
    needed = 2 * max(source.stat().st_size, beside)
    if shutil.disk_usage(cache).free < needed:
        raise DiskFull(path=str(cache), needed_bytes=needed, hint="the model is converted once for OpenVINO")


def _readable(source: Path, work: Path, name: str, header: Header, progress: Progress) -> Path:
    """A file that the reader reads exactly, in the folder where it is to write."""
    file = work / _SOURCE
    if not inexact_types(header):
        _link(source, file)
        return file
    try:
        requantise(source, file, name, progress)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(path=str(work), needed_bytes=source.stat().st_size, hint="free some space") from error
        raise ModelLoadFailed(model=name, stage="weights", reason=error.strerror or str(error)) from error
    return file


def _convert(library: Library, file: Path, name: str) -> None:
    """Let the engine write its IR beside `file`, which is removed."""
    genai: Any = library.genai
    try:
        tokenizer = genai.Tokenizer(str(file), enable_save_ov_model=True)
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = 2
        genai.ContinuousBatchingPipeline(str(file), tokenizer, scheduler, "CPU", enable_save_ov_model=True)
    except (RuntimeError, IndexError, ValueError) as error:  # what its C++ exceptions become here
        raise ModelLoadFailed(model=name, stage="weights", reason=reason_of(error)) from error
    finally:
        file.unlink(missing_ok=True)


def _link(source: Path, link: Path) -> None:
    """A symbolic link; a hard link where the platform allows none."""
    try:
        link.symlink_to(source.absolute())
    except OSError:
        os.link(source, link)


def _place(work: Path, folder: Path, runtime: str, source: Path, name: str) -> Path:
    missing = [file for file in _FILES if not (work / file).is_file()]
    if missing:
        reason = f"the conversion left out {', '.join(missing)}"
        raise ModelLoadFailed(model=name, stage="weights", reason=reason)
    lift_limit(work)
    description = Conversion(
        version=VERSION,
        runtime=runtime,
        source=str(source.absolute()),
        source_size=source.stat().st_size,
        digest=_digest(work),
    )
    private.write(work / DESCRIPTION, msgspec.json.encode(description))
    if is_whole(folder, runtime, source):
        return folder  # another process was first, and may be reading it
    if folder.exists():
        shutil.rmtree(folder)
    try:
        work.rename(folder)
    except OSError:
        if not is_whole(folder, runtime, source):  # another worker was first
            raise
    return folder


def _digest(folder: Path) -> str:
    return fingerprint([str(folder / file) for file in _FILES])
