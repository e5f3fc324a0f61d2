"""Every number that may be configured, once: default, unit, reason and source.

The docs page and the checks are made from this table. Precedence: command-line flag, environment
(`MODELD_<NAME>`), the TOML file, the default. A bad value is an error that names its source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from shared.backends import BACKENDS
from shared.errors import SettingInvalid
from shared.setting_values import converted, table_fault, toml_fault

MIB = 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers in force in one process. Seconds and bytes unless a name says otherwise."""

    lease_ttl: float = 10.0
    grace_window: float = 60.0
    heal_debounce: float = 5.0
    away_check: float = 0.5
    idle_ttl_connected: float = 30 * 60.0
    idle_ttl: float = 5 * 60.0
    queue_limit: int = 32
    queue_wait: float = 120.0
    affinity_bound: float = 30.0
    affinity_load_factor: float = 10.0
    switch_asks_within: float = 60.0
    hold_ttl: float = 15.0
    turn_tokens: int = 8192
    step_gap: float = 5.0
    reaper_silence: float = 5.0
    reaper_samples: int = 3
    reaper_interval: float = 1.0
    text_silence: float = 10.0
    engine_silence: float = 600.0
    cancel_limit: float = 2.0
    shutdown_drain: float = 10.0
    load_stall: float = 60.0
    load_rollback: float = 10.0
    memory_recovery_wait: float = 5.0
    dial_timeout: float = 1.0
    memory_reserve_floor: int = 512 * MIB
    memory_reserve_fraction: float = 0.10
    memory_reserve_cap: float = 0.25
    least_context: int = 4096
    parked_fraction: float = 0.25
    parked_disk_bytes: int = 0
    connection_limit: int = 512
    hello_wait: float = 10.0
    message_limit: int = 64 * MIB
    stalled_bytes: int = 4 * MIB
    stalled_seconds: float = 10.0
    status_interval: float = 0.1
    gap_wait: float = 3.0
    template_deadline: float = 2.0
    backend: str = "auto"
    model_folders: tuple[str, ...] = ()
    threads: int = 0
    speculation: bool = True
    loop_stop: bool = True
    teach_tools_from: int = 1_000_000_000
    keep_days: float = 0.0
    keep_conversations: int = 0

    @property
    def lease_margin(self) -> float:
        """Distance kept between the owner's own fence and a contender's patience."""
        return max(self.lease_ttl / 4, 0.25)

    @property
    def worker_watchdog(self) -> float:
        """Awake seconds without an owner heartbeat after which a worker ends itself."""
        return self.lease_ttl - self.lease_margin


REASONS: dict[str, str] = {
    "lease_ttl": "least 1 s; below that a loaded laptop loses its lease to scheduling",
    "grace_window": "how long pickers keep the last backend's models after the owner went away",
    "heal_debounce": "one reconcile for all resolution misses within this time",
    "away_check": "how often a bridge looks at the lease records while the backend is away",
    "idle_ttl_connected": "idle time before the model is unloaded while an editor is connected",
    "idle_ttl": "idle time before the model is unloaded with no editor connected",
    "queue_limit": "turns waiting at once; more are refused with queue_full",
    "queue_wait": "longest wait of one turn in the queue",
    "affinity_bound": "how long turns of the resident model may run ahead of a waiting switch",
    "affinity_load_factor": "the bound is at least this many load times of the waiting model",
    "switch_asks_within": "a switch asks when another client used the active model this recently",
    "hold_ttl": "a run/hold that is not renewed for this long is dropped",
    "turn_tokens": (
        "tokens that a turn may generate where its client sets no limit, and never more than half of the window; "
        "0: the window alone"
    ),
    "step_gap": "longest pause between the single steps of a turn lease",
    "reaper_silence": "silence after which a turn lease is compared with the engine's account",
    "reaper_samples": "contradicting samples needed before a lease is reaped",
    "reaper_interval": "time between samples",
    "text_silence": "a turn whose text is not handled for this long (after `reaper_silence`) is ended with its worker",
    "engine_silence": (
        "an engine without progress for this long is ended with its turn; ten times its longest step if that is more"
    ),
    "cancel_limit": "time without progress toward a stop before the worker is killed",
    "shutdown_drain": "how long a stop waits for the running turn",
    "load_stall": "a load without progress for this long is ended; one that computes, after ten times that",
    "load_rollback": "a load whose callers have all gone is undone after this",
    "memory_recovery_wait": "how long a switch waits for the old model's memory to come back",
    "dial_timeout": "a connection not accepted for this long means busy, never dead",
    "memory_reserve_floor": "kept free for the desktop at least",
    "memory_reserve_fraction": "kept free for the desktop, as a part of the device",
    "memory_reserve_cap": "the reserve is never more than this part of the device",
    "least_context": "smallest context that `auto` settles for, in tokens",
    "parked_fraction": "part of free memory at load that parked conversations may use",
    "parked_disk_bytes": "disk that conversations may use to stay warm through a switch or restart; 0 keeps none",
    "connection_limit": "clients at once; fewer where the system lets this process open too few files",
    "hello_wait": "a connection that has not said hello after this is closed",
    "message_limit": "largest JSON-RPC message",
    "stalled_bytes": "unsent bytes after which a client counts as stalled",
    "stalled_seconds": "time without drain after which a client counts as stalled",
    "status_interval": "least time between two status pushes to one client",
    "gap_wait": "how long a turn waits visibly for a restarting daemon",
    "template_deadline": "processor time that a chat template may take to render",
    "backend": f"auto, {', '.join(BACKENDS)} or none",
    "model_folders": "folders searched for models besides the store and the known sources",
    "threads": "engine threads; 0 means the physical cores this process may use, fewer while other programs are busy",
    "speculation": "llama.cpp: answers that repeat their conversation are drafted from it, a few tokens at once",
    "loop_stop": "an answer that only repeats itself is ended, with a remark; false lets it run to its bound",
    "teach_tools_from": "parameters from which on a model whose template knows no tools is taught them in words",
    "keep_days": "days after its last message that a saved conversation is forgotten; 0 means never",
    "keep_conversations": "saved conversations kept, the newest first; 0 means all",
}

#: One folder of a list with colons between, or an address, which has colons of its own (and is told to be no folder).
_FOLDER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^/]*(?:/[^:]*)?|[^:]+")
_LEAST: dict[str, float] = {
    "lease_ttl": 1.0,
    "queue_limit": 1,
    "reaper_samples": 1,
    "message_limit": 1024,
    "connection_limit": 8,
    "hello_wait": 0.1,
}
BACKEND_CHOICES = ("auto", *BACKENDS, "none")
#: The one table of the file that is not of settings.
PROVIDERS = "providers"
_TYPES = get_type_hints(Settings)


def load_settings(
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Merge flag, environment, file and default.

    `flags` holds values already parsed (None means not given). Raises SettingInvalid for the first that cannot be used.
    """
    settings, problems = read_settings(environ, file, flags)
    if problems:
        raise problems[0]
    return settings


def read_settings(
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> tuple[Settings, list[SettingInvalid]]:
    """As `load_settings`, but what cannot be used costs itself: the default stands in its place, and it is told."""
    problems: list[SettingInvalid] = []
    checked: dict[str, Any] = {}
    for name, value, source in _given(environ, file, flags or {}, problems):
        try:
            checked[name] = _check(name, value, source, file)
        except SettingInvalid as error:
            problems.append(error)
    return Settings(**checked), problems


def _given(
    environ: Mapping[str, str], file: Path | None, flags: Mapping[str, Any], problems: list[SettingInvalid]
) -> list[tuple[str, Any, str]]:
    """(name, value, source) of everything that is configured, what counts more behind what counts less."""
    given = [(name, value, str(file)) for name, value in _from_file(file, problems).items()]
    for name in Settings.__struct_fields__:
        variable = f"MODELD_{name.upper()}"
        if variable in environ:
            given.append((name, environ[variable], f"environment variable {variable}"))
    return given + [
        (name, value, f"flag --{name.replace('_', '-')}") for name, value in flags.items() if value is not None
    ]


def _from_file(file: Path | None, problems: list[SettingInvalid]) -> dict[str, Any]:
    if file is None or not file.exists():
        return {}
    import tomllib  # 15 ms, only with a config file

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = toml_fault(error)
        told = f"{file}{', ' if reason.startswith(('line ', 'end of ')) else ': '}{reason}"
        problems.append(SettingInvalid(told, name="*", source=str(file), reason=reason))
        return {}
    for name, value in content.items():
        if isinstance(value, dict) and name != PROVIDERS:
            reason = table_fault(name, _TYPES)
            told = f"[{_shown(name)}] in {file}: {reason}"
            problems.append(SettingInvalid(told, name=_shown(name), source=str(file), reason=reason))
    return {key: value for key, value in content.items() if not isinstance(value, dict)}


def _check(name: str, value: Any, source: str, file: Path | None) -> Any:
    def wrong(reason: str) -> SettingInvalid:
        return SettingInvalid(name=_shown(name), source=source, reason=reason)

    if name not in _TYPES:
        raise wrong(_unknown(name))
    if name == "model_folders":
        value = _folders(value, file.parent if file is not None and source == str(file) else None)
    try:
        checked = converted(name, value, _TYPES[name])
    except ValueError as error:
        raise wrong(f"it {error}") from error
    if name == "backend" and checked not in BACKEND_CHOICES:
        raise wrong(
            f"{_shown(checked)!r} is none of {', '.join(BACKEND_CHOICES)}{_near(str(checked), BACKEND_CHOICES)}"
        )
    if isinstance(checked, (int, float)) and not _LEAST.get(name, 0) <= checked < float("inf"):
        raise wrong(f"it must be at least {_LEAST.get(name, 0):g}")
    return checked


def _folders(value: Any, base: Path | None) -> Any:
    """Folders as absolute paths: what is written in a file counts from it (`base`), else from where the caller is."""
    if isinstance(value, str):
        value = _FOLDER.findall(value) if os.pathsep == ":" else [part for part in value.split(os.pathsep) if part]
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        return value
    return [
        part if "://" in part else os.path.abspath(os.path.join(base or "", os.path.expanduser(part))) for part in value
    ]


def _unknown(name: str) -> str:
    return f"there is no such setting{_near(name, _TYPES)}"


def _near(typed: str, names: Iterable[str]) -> str:
    """`; did you mean ...?` where one of the names is near."""
    import difflib  # only for a mistake

    near = difflib.get_close_matches(typed, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _shown(word: str) -> str:
    """What stands in the place of a name, unless it may be a key that was put there by mistake."""
    from shared.text.secret import HIDDEN, looks_secret  # only for a mistake

    return HIDDEN if looks_secret(word) else word
