"""`modeld/library`: every model on disk, servable or not. Works with the daemon stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window

#: How long a refresh that was asked for may take before what is there is shown.
REFRESH_S = 10.0


async def handle(window: Window, params: wire.LibraryParams) -> wire.Library:
    """Reads files in a thread."""
    from acp_bridge.faces.lsp.listing import seen_by
    from acp_bridge.faces.lsp.rows import library_models

    core = await window.core()
    if params.refresh or not core.models.looked.is_set():
        await core.models.look(REFRESH_S)
    view = await core.models.library_view()
    return wire.Library(
        models=library_models(seen_by(window, core, view)),
        complete=view.complete,
        problems=list(view.problems),
        folder=str(window.root.models),
    )
