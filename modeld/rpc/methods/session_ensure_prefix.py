"""`session/ensure_prefix`: the first step of a turn: what is warm of the prompt comes into a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.checks import require_conversation, require_shallow
from modeld.rpc.streaming import events_of
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.PrefixResult:
    """Raises SessionClosed, StaleError, InvalidParams (out of order), ContextOverflow, TemplateFailed."""
    params = call.params(api.PrefixParams)
    held = daemon.handles.turn(connection, params.turn)
    require_conversation(params.messages, params.tools)
    require_shallow(params.params.json_schema, "$.params.json_schema")
    call.on_cancel(held.stop)
    return await held.ensure_prefix(params, events_of(call))
