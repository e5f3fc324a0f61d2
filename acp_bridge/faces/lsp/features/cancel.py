"""`modeld/cancel`: work that runs is asked to end in order; its own request still answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window


async def handle(window: Window, params: wire.CancelParams) -> wire.Cancelled:
    """Nothing to cancel is no error."""
    return wire.Cancelled(count=window.cancel(params))
