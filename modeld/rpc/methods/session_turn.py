"""`session/turn`: one ticket for switch, load, prefill and decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.rpc.checks import require_conversation, require_shallow, require_text_alone
from modeld.rpc.streaming import Stopper
from modeld.slot.caller import Permission
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.TurnResult:
    """Streams `session/event`; a cancel answers with the final event, not with an error."""
    params = call.params(api.TurnParams)
    if params.prompt is None:
        require_conversation(params.messages, params.tools)
    else:
        require_text_alone(params)
    require_shallow(params.params.json_schema, "$.params.json_schema")
    stopper = Stopper(daemon.slot.scheduler, call)
    await daemon.own()
    entry = await daemon.slot.find(params.model)
    permission = Permission(
        load=params.allow_load,
        switch=params.allow_switch,
        consent=params.consent,
        on_busy=params.on_busy,
        wait_s=params.wait_s,
    )
    return await daemon.slot.scheduler.submit(
        "turn",
        connection.caller,
        entry,
        params.config,
        permission,
        stopper.emit,
        lambda request: daemon.slot.operations.turn(request, entry, params),
        stopper.attach,
    )
