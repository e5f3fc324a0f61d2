"""`modeld/unload`: free the slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window


async def handle(window: Window, params: wire.UnloadParams) -> wire.Unloaded:
    """Raises ModelBusy while a turn runs (unless it may be cancelled), SlotGenerationStale for another model."""
    core = await window.core()
    asked = api.UnloadParams(
        expect=api.Expect(model=params.model) if params.model else None,
        on_busy="cancel" if params.cancel else "fail",
    )
    done = await core.daemon.call("model/unload", asked, api.UnloadResult)
    return wire.Unloaded(model=done.freed, freed_bytes=done.freed_bytes)
