"""`initialize`: protocol 1 to any number, and what this agent can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.acp.schema import (
    PROTOCOL_VERSION,
    AgentInfo,
    AuthMethod,
    ClientCapabilities,
    Implementation,
    InitializeParams,
    InitializeResult,
)
from shared.text.shown import NAME_MOST, one_line
from shared.version import __version__

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


#: Nothing has to be logged in to; registries ask for at least one method.
AUTH_METHODS = [
    AuthMethod(id="local", name="This computer", description="Models run on this computer; no account is needed")
]

CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    "sessionCapabilities": {"list": {}, "delete": {}, "additionalDirectories": {}, "resume": {}, "close": {}},
    "auth": {"logout": {}},
}


async def handle(server: AcpServer, call: Call) -> InitializeResult:
    """Remember what the editor offers. A client of the v2 draft is understood and gets version 1."""
    params = call.params(InitializeParams)
    server.offers = params.client_capabilities or params.capabilities or ClientCapabilities()
    info = params.client_info or params.info or Implementation()
    server.client = one_line(info.title or info.name, NAME_MOST) or server.client
    call.after_response(server.start_core)
    return InitializeResult(
        protocol_version=PROTOCOL_VERSION,
        agent_capabilities=CAPABILITIES,
        auth_methods=AUTH_METHODS,
        agent_info=AgentInfo(name="modeld", title="modeld", version=__version__),
    )
