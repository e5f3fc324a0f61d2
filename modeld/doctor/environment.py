"""What modeld stands on: versions, environment, settings, data root, sockets, engines, memory, models."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.diagnosis.finding import Finding
from shared.diagnosis.remedy import install_command
from shared.errors import ModeldError
from shared.paths import DataRoot, config_file, data_root, home
from shared.protocol import api
from shared.settings import Settings, read_settings
from shared.text.words import counted, few, size_text
from shared.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024
#: Below this, logs and records may fail at any moment; below the other, a model does not fit any more. Bytes.
DISK_PROBLEM = 64 * MIB
DISK_NOTE = 2048 * MIB


def versions() -> list[Finding]:
    """This installation."""
    text = f"modeld {__version__}, protocol {api.PROTOCOL}, Python {platform.python_version()}, {platform.platform()}"
    return [Finding(what="version", text=text)]


def environment(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """HOME and PATH."""
    found = []
    if home(environ) is None:
        fix = "set HOME to your folder, or MODELD_DATA_ROOT and MODELD_CONFIG to places of their own"
        found.append(Finding(what="HOME", verdict="problem", text="no home folder is known", fix=fix))
    if shutil.which("modeld", path=environ.get("PATH", "")) is None:
        beside = f"{os.path.dirname(sys.executable)}{os.sep}modeld"
        what = "PATH is empty" if not environ.get("PATH") else "the command `modeld` is not on PATH"
        fix = f"call it as {beside}; editors are given absolute paths and need nothing"
        found.append(Finding(what="PATH", verdict="note", text=what, fix=fix))
    return found


#: What comes of a setting that cannot be used.
HOLDS = "until then its default holds"


def settings() -> tuple[Settings, list[Finding]]:
    """The settings in force; the defaults where they cannot be read."""
    try:
        file = config_file()
        loaded, problems = read_settings(file=file)
    except ModeldError as error:
        return Settings(), [Finding(what="settings", verdict="problem", text=error.message)]
    overridden = [name for name in Settings.__struct_fields__ if f"MODELD_{name.upper()}" in os.environ]
    text = ", ".join(
        [str(file) if file.exists() else "no file, the defaults", *(f"environment {one}" for one in overridden)]
    )
    wrong = [
        Finding(what="settings", verdict="problem", text=one.message, fix=f"correct it in {one.source}; {HOLDS}")
        for one in problems
    ]
    lost = [name for name in loaded.model_folders if "://" not in name and not os.path.isdir(name)]
    missing = [Finding(what="settings", verdict="note", text=f"model folder {name} is not there") for name in lost]
    return loaded, [*(wrong or [Finding(what="settings", text=text)]), *missing]


def root() -> tuple[DataRoot | None, list[Finding]]:
    """The data root: who owns it, whether it can be written, how much room there is. It is not made here."""
    try:
        where = data_root()
    except ModeldError as error:
        fix = str(error.data.get("hint") or "")
        return None, [Finding(what="data root", verdict="problem", text=error.message, fix=fix)]
    if not where.path.exists():
        return where, [Finding(what="data root", text=f"{where.path}, made at the first start"), *_room(where.path)]
    from shared.lease.disk import owner_of
    from shared.lease.files import prepare

    try:
        prepare(where)
    except ModeldError as error:
        fix = _root_fix(where.path) if where.path.is_dir() else _away_fix(where.path)
        return where, [Finding(what="data root", verdict="problem", text=error.message, fix=fix)]
    if not os.access(where.path, os.W_OK | os.X_OK):
        uid, mode = owner_of(where.path)
        text = f"{where.path} cannot be written (owner {uid}, mode {mode}, or on a disk that is read-only)"
        return where, [Finding(what="data root", verdict="problem", text=text, fix=_root_fix(where.path))]
    return where, [Finding(what="data root", text=str(where.path)), *_modes(where), *_room(where.path)]


def _root_fix(path: Path) -> str:
    return f"`chmod u+rwx {path}` and see that it is yours, or set MODELD_DATA_ROOT to a local folder of yours"


def _away_fix(path: Path) -> str:
    return f"move {path} away, or set MODELD_DATA_ROOT to a local folder of yours"


def _modes(where: DataRoot) -> list[Finding]:
    """Secrets that others could read, and a root that they may look into."""
    if sys.platform == "win32":
        return []
    found = []
    mode = stat.S_IMODE(where.path.stat().st_mode)
    if mode & 0o077:
        text = f"others may list {where.path} (mode {mode:o}); the files of modeld in it are yours alone"
        found.append(Finding(what="data root", verdict="note", text=text, fix=f"`chmod 700 {where.path}`"))
    for token in sorted(where.instances.glob("*.token")):
        facts = token.stat()
        if stat.S_IMODE(facts.st_mode) & 0o077 or facts.st_uid != os.geteuid():
            text = f"{token.name} can be read by others (mode {stat.S_IMODE(facts.st_mode):o}, owner {facts.st_uid})"
            fix = "`modeld restart` makes a new one"
            found.append(Finding(what="token", verdict="problem", text=text, fix=fix))
    return found


def _room(path: Path) -> list[Finding]:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{size_text(free)} free"
    if free < DISK_PROBLEM:
        fix = "free some space: `modeld library` lists models by size, `modeld rm NAME` removes one that was pulled"
        return [Finding(what="disk", verdict="problem", text=f"full: {text}", fix=fix)]
    if free < DISK_NOTE:
        return [Finding(what="disk", verdict="note", text=f"{text}: little for another model", fix="`modeld library`")]
    return [Finding(what="disk", text=text)]


def sockets(where: DataRoot) -> list[Finding]:
    """The folder that sockets stand in."""
    if sys.platform == "win32":
        return []
    from shared.endpoint.folder import problem, runtime_folder

    folder = runtime_folder(where).path
    try:
        wrong = problem(folder) if folder.exists() else None
    except OSError as error:
        wrong = error.strerror or str(error)
    if wrong:
        fix = f"remove {folder}, or set XDG_RUNTIME_DIR to a folder that only you can enter (mode 0700)"
        return [Finding(what="sockets", verdict="problem", text=f"{folder}: {wrong}", fix=fix)]
    return [Finding(what="sockets", text=str(folder))]


def engines() -> list[Finding]:
    """What can run models here."""
    from modeld.engine.backends import available

    found = available()
    rows = [
        Finding(
            what=f"engine {one.backend}",
            verdict="ok" if one.importable else "note",
            text=f"usable on {', '.join(one.devices)}" if one.importable else one.reason,
        )
        for one in found
    ]
    if not any(one.importable for one in found):
        fix = f"`{install_command('openvino')}` (prebuilt), or the same with [llama] (needs a C++ compiler)"
        rows.append(Finding(what="engines", verdict="problem", text="none is installed", fix=fix))
    return rows


def memory_and_models(where: DataRoot, limits: Settings, *, resident: bool) -> list[Finding]:
    """Free memory, the library, and whether anything in it would fit (which is known where one is `resident`)."""
    from modeld.memory.policy import reserve_bytes, under_pressure
    from modeld.memory.probe import host_memory
    from shared.catalog.advertised import fit
    from shared.catalog.library import Library

    memory = host_memory()
    reserve = reserve_bytes(memory.total, limits)
    free = f"{size_text(memory.free)} of {size_text(memory.total)} free"
    text = f"{free}, {size_text(reserve)} reserved for other programs"
    short = under_pressure(memory, limits)
    fix = "`modeld unload` frees a model's memory; close what is not needed" if short else ""
    rows = [Finding(what="memory", verdict="note" if short else "ok", text=text, fix=fix)]
    library = Library(where, limits)
    try:
        library.wait(20.0)
        entries, problems = library.rows(), library.problems
    finally:
        library.close()
    rows += [Finding(what="library", verdict="note", text=one) for one in few(problems, "`modeld library --json`")]
    if not entries:
        rows.append(Finding(what="library", verdict="note", text="no models", fix="`modeld pull starter` fetches one"))
        return rows
    rows.append(Finding(what="library", text=counted(len(entries), "model")))
    able = [entry for entry in entries if entry.backends]
    needs = {
        entry.name: fit.estimate(entry, free=memory.free, reserve=reserve, least=limits.least_context) for entry in able
    }
    if able and not resident and all(one.verdict == "too_big" for one in needs.values()):
        smallest = min(able, key=lambda entry: entry.size_bytes)
        text = f"too little for every model; the smallest is {smallest.name}: {needs[smallest.name].text}"
        fix = "close programs, take a smaller context (`modeld load NAME --ctx 2048`), or `modeld pull starter`"
        rows.append(Finding(what="memory", verdict="problem", text=text, fix=fix))
    return rows
