"""`modeld/models`: the picker's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window


async def handle(window: Window, params: wire.ModelsParams) -> wire.Models:
    """Answers from what is known; the first time it may wait a moment for it. Never fails in a gap."""
    from acp_bridge.faces.lsp.listing import listing

    core = await window.core()
    if params.wait:
        await core.models.first_rows()
    return await listing(window, core, params.workspace)
