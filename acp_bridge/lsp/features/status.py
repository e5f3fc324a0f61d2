"""`modeld/status`: where the service and the slot stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_bridge.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.lsp.window import Window

#: How long the first look at the records may keep an editor waiting.
LOOK_S = 1.0


async def handle(window: Window, params: wire.Nothing) -> wire.Status:
    """Answers from what was pushed last; asks nobody."""
    from acp_bridge.lsp.listing import standing

    core = await window.core()
    with anyio.move_on_after(LOOK_S):
        await core.daemon.looked.wait()
    return standing(window, core)
