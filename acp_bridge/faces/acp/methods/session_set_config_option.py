"""`session/set_config_option`: record what the user picked; nothing is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.errors import invalid
from acp_bridge.faces.acp.options import MODE, MODEL, TOOLS
from acp_bridge.faces.acp.schema import SetConfigOptionParams, SetConfigOptionResult
from acp_bridge.models.thinking import THINKING
from shared.errors import ModelNotFound

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> SetConfigOptionResult:
    """Answers with the complete list. Raises SessionUnknown, and InvalidParams naming what is not offered."""
    params = call.params(SetConfigOptionParams)
    core = server.core
    live = core.conversations.get(params.session_id)
    if params.config_id == MODEL:
        try:
            await core.selection.pick(live, params.value)
        except ModelNotFound as error:
            raise invalid("value", error.message) from error
    elif params.config_id == MODE:
        core.selection.set_mode(live, params.value)
    elif params.config_id == THINKING:
        core.selection.set_thinking(live, params.value)
    elif params.config_id == TOOLS and server.editor.takes_booleans:
        core.selection.set_tools(live, params.value)
    else:
        raise invalid("configId", f"{params.config_id!r} is not an option of this session")
    return SetConfigOptionResult(config_options=server.editor.options(live))
