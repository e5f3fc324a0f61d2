"""A short report on what works, each finding with its next step. Pure over what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shared.diagnosis.finding import Finding

if TYPE_CHECKING:
    from acp_bridge.conversations.store import Store
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.models.view import Models
    from acp_bridge.providers.health import Health


def findings(daemon: Daemon, models: Models, store: Store) -> list[Finding]:
    """On modeld, the models and the conversations."""
    return [*_daemon(daemon), *_models(models), *_store(store)]


def provider_findings(looked: Sequence[Health]) -> list[Finding]:
    """On the remote endpoints, as they answered now."""
    return [Finding(what=one.what, verdict=one.verdict, text=one.text, fix=one.fix) for one in looked]


def editor_findings(editors: Mapping[str, tuple[Path, list[str] | None]], works: Callable[[str], str]) -> list[Finding]:
    """On the editors whose settings are here: `editors` by name with the file and the command in it; `works` gives
    "" for an interpreter that has the bridge, else what is wrong with it.
    """
    found = []
    for name, (file, command) in editors.items():
        if command is None:
            text, fix = f"{file} does not name modeld", f"`acp-bridge install {name}`"
            found.append(Finding(what=f"editor {name}", verdict="note", text=text, fix=fix))
            continue
        wrong = works(command[0])
        if wrong:
            text, fix = f"{file} names {command[0]}, {wrong}", f"`acp-bridge install {name}` writes the right one"
            found.append(Finding(what=f"editor {name}", verdict="problem", text=text, fix=fix))
        else:
            found.append(Finding(what=f"editor {name}", text=f"{file} names {command[0]}"))
    return found


def report_text(found: Sequence[Finding]) -> str:
    """For a conversation."""
    return "\n".join(f"- {one.what}: {one.text}{f' ({one.fix})' if one.fix else ''}" for one in found)


def _daemon(daemon: Daemon) -> list[Finding]:
    status = daemon.status
    if status is None:
        away = daemon.detection.state
        stopped = away in ("not_running", "stale", "restarting")
        text = daemon.detection.error().message
        return [Finding(what="modeld", verdict="note" if stopped else "problem", text=text)]
    role = f"running as {status.role}, backend {status.backend}, version {status.version}"
    found = [Finding(what="modeld", text=role)]
    if status.memory.pressure:
        found.append(Finding(what="memory", verdict="note", text="under pressure", fix="`modeld unload`"))
    if status.last_error:
        found.append(Finding(what="last error", verdict="note", text=str(status.last_error.get("message", ""))))
    return found


def _models(models: Models) -> list[Finding]:
    if not models.rows:
        return [Finding(what="models", verdict="note", text=models.reason or "none")]
    return [Finding(what="models", text=f"{len(models.rows)} that can be served")]


def _store(store: Store) -> list[Finding]:
    damaged = [Finding(what="conversations", verdict="problem", text=text) for text in store.damaged]
    if not store.writable():
        fix = "`modeld doctor` says what is wrong with the data root"
        text = "cannot be saved: no right to write"
        damaged.append(Finding(what="conversations", verdict="problem", text=text, fix=fix))
    return damaged or [Finding(what="conversations", text="saved in this data root")]
