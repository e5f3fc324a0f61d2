"""The core's view of the models and the service, as this window shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.rows import Seen, picker_models
from acp_bridge.faces.lsp.state import service_status
from acp_bridge.models.picker import nothing_reason

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.window import Window
    from acp_bridge.models.library_view import LibraryView
    from shared.protocol import api


def seen_by(window: Window, core: Core, view: LibraryView) -> Seen:
    """What is known now."""
    return Seen(
        advertised=core.models.rows,
        library=view.rows,
        remotes=core.models.remotes,
        status=core.daemon.status,
        active=core.models.active,
        fits=view.fits,
        speeds=window.speeds,
        me=window.name,
    )


async def listing(window: Window, core: Core, workspace: str = "") -> wire.Models:
    """The picker of a workspace."""
    view = await core.models.library_view()
    picked = await window.picked(workspace)
    models = picker_models(seen_by(window, core, view), picked, core.models.missing(picked) if picked else "")
    current = await window.model_of(picked)
    answers = next((model for model in models if model.id == current), None)
    return wire.Models(
        models=models,
        picked=picked,
        default=await window.model_of(""),
        reason=_why(answers, core),
        complete=view.complete,
    )


def _why(answers: wire.Model | None, core: Core) -> str:
    """Why nothing answers, "" where something does."""
    if answers is None:
        return nothing_reason(core.models.reason, core.models.remotes)
    return "" if answers.selectable else answers.reason


def standing(window: Window, core: Core, now: api.Status | None = None) -> wire.Status:
    """The status as this window shows it: `now`, or what was pushed last."""
    status = now or core.daemon.status
    active = status.active.name if status is not None and status.active is not None else ""
    return service_status(
        status,
        core.daemon.detection,
        looked=core.daemon.looked.is_set(),
        speed=window.speeds.get(active, 0.0),
        me=window.name,
    )
