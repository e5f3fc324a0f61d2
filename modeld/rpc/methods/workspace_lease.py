"""`workspace/lease`: an exclusive, time-bound claim of a workspace by a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.WorkspaceResult:
    """Raises ModelInUse (state `claimed`) while another client holds it, NotOwner, RootError."""
    params = call.params(api.WorkspaceParams)
    await daemon.own()
    holder = connection.caller.name
    if params.release:
        await daemon.store.release_workspace(params.workspace, holder)
        return api.WorkspaceResult(workspace=params.workspace, holder="", expires_s=0.0)
    lease = await daemon.store.claim_workspace(params.workspace, holder, params.ttl_s)
    return api.WorkspaceResult(workspace=lease.workspace, holder=lease.holder, expires_s=lease.remaining_s)
