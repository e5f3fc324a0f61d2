"""`modeld/start` and `modeld/stop`: only ever at the user's explicit word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window


async def start(window: Window, params: wire.Nothing) -> wire.Said:
    """Raises DaemonNotInstalled, DaemonUnreachable with what the command said."""
    from acp_bridge.daemon.start import start_daemon
    from acp_bridge.faces.lsp.listing import standing

    core = await window.core()
    text = await start_daemon()
    await core.daemon.reconnect()
    return wire.Said(text=text, status=standing(window, core))


async def stop(window: Window, params: wire.Nothing) -> wire.Said:
    """Raises DaemonNotInstalled, DaemonUnreachable with what the command said."""
    from acp_bridge.daemon.start import stop_daemon
    from acp_bridge.faces.lsp.listing import standing

    core = await window.core()
    text = await stop_daemon()
    await core.daemon.reconnect()
    return wire.Said(text=text, status=standing(window, core))
