"""GGUF to IR, once for each file and engine version, in a cache of our own.

The engine writes its IR beside the GGUF it is given, so it is given a link in a folder of ours. The
folder gets its name only when all is written and described; what does not match its description is
recreated. Only folders that bear our description are ever removed.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from modeld.engine.openvino.library import Library, reason_of
from modeld.engine.openvino.tokenizer_limit import lift_limit
from shared.catalog.fingerprint import fingerprint
from shared.errors import DiskFull, ModelLoadFailed
from shared.system import private
from shared.text.nesting import decode_json

DESCRIPTION = "conversion.json"
#: Raised when converted models must be recreated.
VERSION = 1
_FILES = (
    "openvino_model.xml",
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
)
_LINK = "model.gguf"
_ABANDONED_S = 6 * 3600.0


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished folder holds: who made it, out of what, and the digest of its files together."""

    version: int
    runtime: str
    source: str
    source_size: int
    digest: str


def converted(library: Library, source: Path, digest: str, cache: Path, name: str) -> tuple[Path, bool]:
    """The IR folder of a GGUF file, and whether it had to be made.

    Raises ModelLoadFailed at stage `weights`, DiskFull.
    """
    folder = cache / re.sub(r"[^A-Za-z0-9._-]", "_", digest or source.name)
    if is_whole(folder, library.digest(), source):
        return folder, False
    private.folder(cache)
    sweep(cache, library.digest())
    work = cache / f"{folder.name}.{os.getpid()}.tmp"
    shutil.rmtree(work, ignore_errors=True)
    try:
        _need_room(cache, source)
        work.mkdir(mode=0o700)
        _convert(library, source, work, name)
        return _place(work, folder, library.digest(), source, name), True
    finally:
        shutil.rmtree(work, ignore_errors=True)


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
        if folder.name.endswith(".tmp"):
            stale = (time.time() if now is None else now) - folder.stat().st_mtime > _ABANDONED_S
        else:
            stale = _is_stale(folder, runtime)
        if stale:
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


def _is_stale(folder: Path, runtime: str) -> bool:
    try:
        found = decode_json((folder / DESCRIPTION).read_bytes(), Conversion)
    except (OSError, msgspec.MsgspecError):
        return False  # not described by us: not ours to remove
    return found.runtime != runtime or found.version != VERSION or not Path(found.source).exists()


def _need_room(cache: Path, source: Path) -> None:
    """An IR takes about as much as its GGUF; twice that is asked for, since some types are widened."""
    needed = 2 * source.stat().st_size
    if shutil.disk_usage(cache).free < needed:
        raise DiskFull(path=str(cache), needed_bytes=needed, hint="the model is converted once for OpenVINO")


def _convert(library: Library, source: Path, work: Path, name: str) -> None:
    link = work / _LINK
    _link(source, link)
    genai: Any = library.genai
    try:
        tokenizer = genai.Tokenizer(str(link), enable_save_ov_model=True)
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = 2
        genai.ContinuousBatchingPipeline(str(link), tokenizer, scheduler, "CPU", enable_save_ov_model=True)
    except RuntimeError as error:
        raise ModelLoadFailed(model=name, stage="weights", reason=reason_of(error)) from error
    finally:
        link.unlink(missing_ok=True)


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
