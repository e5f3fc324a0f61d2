"""`session/set_mode`: the older way to set the mode option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.conversations.events import OptionsChanged
from acp_bridge.faces.acp.schema import Empty, SetModeParams

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> Empty:
    """Raises SessionUnknown, and InvalidParams for a mode that is not offered."""
    params = call.params(SetModeParams)
    live = server.core.conversations.get(params.session_id)
    server.core.selection.set_mode(live, params.mode_id)
    server.core.audience.show(live, OptionsChanged())
    return Empty()
