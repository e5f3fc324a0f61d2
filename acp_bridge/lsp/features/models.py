"""`modeld/models`: the picker's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_bridge.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.lsp.window import Window

#: A first look at a cold library takes about this long at most.
FIRST_LOOK_S = 2.0


async def handle(window: Window, params: wire.ModelsParams) -> wire.Models:
    """Answers from what is known; the first time it may wait a moment for it. Never fails in a gap."""
    from acp_bridge.lsp.listing import listing

    core = await window.core()
    if params.wait:
        with anyio.move_on_after(FIRST_LOOK_S):
            await core.models.known.wait()
            if not core.models.rows:
                await core.models.looked.wait()
    return await listing(window, core, params.workspace)
