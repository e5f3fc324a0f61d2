"""`modeld/describe`: what a load would mean. Loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire
from shared.errors import ModeldError, ModelNotFound
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.window import Window


async def handle(window: Window, params: wire.DescribeParams) -> wire.Description:
    """The daemon's own plan where it can be had, else an estimate. Raises ModelNotFound."""
    from acp_bridge.faces.lsp.listing import listing
    from shared.text.words import switch_sentence, use_sentence

    core = await window.core()
    if not core.daemon.connected:
        await core.daemon.reconnect()  # what is resident decides what a load would mean; bounded
    shown = await listing(window, core)
    model = next((model for model in shown.models if model.id == params.model), None)
    if model is None:
        from shared.catalog.names import nearest

        raise ModelNotFound(requested=params.model, near=nearest(params.model, [one.id for one in shown.models]))
    info = await _info(core, params) if model.group != "remote" else None
    fit = model.fit
    if info is not None and info.plan is not None:
        from acp_bridge.faces.lsp.rows import wire_fit
        from acp_bridge.models.memory_forecast import planned

        fit = wire_fit(planned(info.plan))
    active = core.daemon.status.active if core.daemon.status is not None else None
    described = wire.Description(model=model, fit=fit, warnings=info.warnings if info is not None else [])
    if active is not None and model.group != "remote" and active.name != model.id:
        described.switch = switch_sentence(active.name, model.id)
        others = core.local.others()
        described.in_use = use_sentence(active.name, others) if others else ""
    return described


async def _info(core: Core, params: wire.DescribeParams) -> api.ModelInfo | None:
    if not core.daemon.connected:
        return None
    asked = api.DescribeParams(model=params.model, config=api.LoadConfig(num_ctx=params.context))
    try:
        return await core.daemon.call("model/describe", asked, api.ModelInfo)
    except ModeldError:
        return None  # advice alone: the estimate stands
