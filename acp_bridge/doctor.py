"""A short report on what works, each finding with its next step. Pure over what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.models import Models
    from acp_bridge.session.store import Store


def doctor_report(daemon: Daemon, models: Models, store: Store) -> str:
    """Findings as a list: modeld, the library, the conversations."""
    return "\n".join(f"- {line}" for line in [*_daemon(daemon), *_models(models), *_store(store)])


def _daemon(daemon: Daemon) -> list[str]:
    status = daemon.status
    if status is None:
        return [f"modeld: {daemon.detection.state.replace('_', ' ')}; {daemon.detection.error().message}"]
    lines = [f"modeld: running as {status.role}, backend {status.backend}, version {status.version}"]
    if status.memory.pressure:
        lines.append("memory: under pressure; `/unload` frees the model")
    if status.last_error:
        lines.append(f"last error: {status.last_error.get('message', '')}")
    return lines


def _models(models: Models) -> list[str]:
    if models.away.reason:
        return [f"models: {models.away.reason}"]
    if not models.rows:
        return ["models: none; `modeld pull starter` gets a small one"]
    return [f"models: {len(models.rows)} that can be served"]


def _store(store: Store) -> list[str]:
    return [f"conversations: {finding}" for finding in store.damaged] or ["conversations: saved in this data root"]
