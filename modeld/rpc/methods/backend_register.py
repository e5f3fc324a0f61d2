"""`backend/register`: keep the configuration of a backend across owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.Value:
    """Raises NotOwner, RootError."""
    params = call.params(api.BackendParams)
    await daemon.own()
    await daemon.store.register_backend(params.name, params.config, connection.caller.name)
    return api.Value()
