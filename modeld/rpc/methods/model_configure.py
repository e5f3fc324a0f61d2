"""`model/configure`: settings kept for a model; on the resident one they wait for its next load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.slot.describe import describe, require_usable
from modeld.slot.request import identity_of
from shared.catalog.identity import serves
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.ConfigureResult:
    """Answers the new plan. Raises ModelNotFound, NotOwner, RootError, UnsupportedFeature (then nothing is kept)."""
    params = call.params(api.ConfigureParams)
    slot = daemon.slot
    entry = await slot.find(params.model)
    await daemon.own()
    await require_usable(slot, entry, params.config)
    info = await describe(slot, api.DescribeParams(model=entry.name, config=params.config))
    await daemon.records.keep_config(entry.name, params.config)
    active = slot.state.active
    if active is not None and active.name == entry.name:
        pending = not serves(active, identity_of(entry, params.config, daemon.backend))
        slot.reconfigured(pending_reload=pending)
        return api.ConfigureResult(config=params.config, pending_reload=pending, plan=info.plan)
    return api.ConfigureResult(config=params.config, pending_reload=False, plan=info.plan)
