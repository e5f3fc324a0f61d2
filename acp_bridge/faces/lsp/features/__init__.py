"""One file a feature of the LSP face; this table is what it answers of our own methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window

Handler = Callable[["Window", Any], Awaitable[Any]]


def handlers() -> dict[str, Handler]:
    """What answers each method that editors send."""
    from acp_bridge.faces.lsp.features import (
        cancel,
        count,
        describe,
        doctor,
        library,
        load,
        models,
        pick,
        pull,
        service,
        status,
        turn,
        unload,
    )

    return {
        "modeld/models": models.handle,
        "modeld/status": status.handle,
        "modeld/turn": turn.handle,
        "modeld/cancel": cancel.handle,
        "modeld/count": count.handle,
        "modeld/pick": pick.handle,
        "modeld/describe": describe.handle,
        "modeld/load": load.load,
        "modeld/switch": load.switch,
        "modeld/unload": unload.handle,
        "modeld/library": library.handle,
        "modeld/pull": pull.handle,
        "modeld/start": service.start,
        "modeld/stop": service.stop,
        "modeld/doctor": doctor.handle,
    }
