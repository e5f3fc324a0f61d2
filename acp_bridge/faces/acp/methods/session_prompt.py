"""`session/prompt`: one turn, streamed; its answer comes after everything it showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acp_bridge.cancel import Cancel
from acp_bridge.faces.acp.content import parts_of
from acp_bridge.faces.acp.schema import PromptParams, PromptResult

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


#: Key of the counts and timings of a turn in the answer's `_meta`.
META = "modeld.turn"


async def handle(server: AcpServer, call: Call) -> PromptResult:
    """Raises SessionUnknown, InvalidParams, and every typed error that ends a turn."""
    params = call.params(PromptParams)
    live = server.core.conversations.get(params.session_id)
    parts = parts_of(params.prompt)
    server.editor.announce(live)
    cancel = Cancel()
    call.on_cancel(cancel.request)
    ended = await server.core.turns.prompt(live, parts, cancel)
    meta = {META: ended.numbers} if ended.numbers else msgspec.UNSET
    stop = "end_turn" if ended.stop == "failed" else ended.stop
    return PromptResult(stop_reason=stop, meta=meta)
