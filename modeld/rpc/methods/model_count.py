"""`model/count`: tokens under the model's own template; never loads, queues or counts as use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.checks import require_conversation
from shared.protocol import api
from shared.protocol.faults import InvalidParams

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.CountResult:
    """Served beside a decode, or by a helper without weights."""
    params = call.params(api.CountParams)
    if (params.messages is None) == (params.text is None):
        raise InvalidParams(at="$", reason="either messages or text")
    if params.messages is not None:
        require_conversation(params.messages, params.tools)
    entry = await daemon.slot.find(params.model)
    return await daemon.counter.count(entry, params)
