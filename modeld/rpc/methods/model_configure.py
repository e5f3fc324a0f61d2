"""`model/configure`: settings kept for a model; on the resident one they wait for its next load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modeld.slot.describe import describe, require_usable
from modeld.slot.request import identity_of, merged
from shared.catalog.identity import serves
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from shared.protocol.requests import Call

ALL = "*"


async def handle(daemon: Serving, connection: Connection, call: Call) -> api.ConfigureResult:
    """Answers what is kept now, and its plan.

    Raises ModelNotFound, NotOwner, RootError, UnsupportedFeature (then nothing is kept).
    """
    params = call.params(api.ConfigureParams)
    slot = daemon.slot
    entry = await slot.find(params.model)
    kept = await daemon.records.config(entry.name, entry.aliases)
    config = merged(params.config, without(kept, params.reset))
    if config != kept:
        await daemon.own()
        await require_usable(slot, entry, config)
        await daemon.records.keep_config(entry.name, config)
    plan = (await describe(slot, api.DescribeParams(model=entry.name, config=config))).plan
    active = slot.state.active
    pending = False
    if active is not None and active.name == entry.name:
        pending = not serves(active, identity_of(entry, config, daemon.backend))
        slot.reconfigured(pending_reload=pending)
    return api.ConfigureResult(config=config, pending_reload=pending, plan=plan)


def without(config: api.LoadConfig, names: list[str]) -> api.LoadConfig:
    """The settings with those given back. Pure."""
    if ALL in names:
        return api.LoadConfig()
    defaults = api.LoadConfig()
    known = [name for name in names if name in api.LoadConfig.__struct_fields__]
    return msgspec.structs.replace(config, **{name: getattr(defaults, name) for name in known})
