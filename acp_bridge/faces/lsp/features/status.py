"""`modeld/status`: where the service and the slot stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_bridge.faces.lsp import wire
from shared.errors import ModeldError
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.window import Window

#: How long the first look at the records may keep an editor waiting.
LOOK_S = 1.0


async def handle(window: Window, params: wire.Nothing) -> wire.Status:
    """As it is now; from what was pushed last when nobody answers."""
    from acp_bridge.faces.lsp.listing import standing

    core = await window.core()
    with anyio.move_on_after(LOOK_S):
        await core.daemon.looked.wait()
    now = await _asked(core) if core.daemon.connected else None
    return standing(window, core, now)


async def _asked(core: Core) -> api.Status | None:
    """Pushes are coalesced, so that the last one may be a moment old."""
    with anyio.move_on_after(LOOK_S):
        try:
            return await core.daemon.call("status", api.Fenced(), api.Status)
        except ModeldError:
            return None
    return None
