"""`modeld/load` and `modeld/switch`: load a model into memory, with progress that can be cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.features.pick import remember
from acp_bridge.faces.lsp.shown import Shown
from acp_bridge.faces.lsp.window import Work
from shared.errors import UnsupportedFeature
from shared.protocol import api
from shared.protocol.faults import RequestCancelled

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window


async def load(window: Window, params: wire.LoadParams) -> wire.Loaded:
    """Raises ModelSwitchRequired when another model is there, besides the errors of a load."""
    return await _begin(window, params, switch=False)


async def switch(window: Window, params: wire.LoadParams) -> wire.Loaded:
    """Raises ConsentDeclined, ModelSwitchRequired (consent `never`), besides the errors of a load."""
    return await _begin(window, params, switch=True)


async def _begin(window: Window, params: wire.LoadParams, *, switch: bool) -> wire.Loaded:
    work = Work(params.partial_result_token, params.work_done_token)
    work.model = params.model
    return await window.carry(work, lambda: _load(window, params, work, switch=switch))


async def _load(window: Window, params: wire.LoadParams, work: Work, *, switch: bool) -> wire.Loaded:
    from acp_bridge.cancel import TurnCancelled
    from acp_bridge.models.picker import RemoteModel

    core = await window.core()
    # nothing is sent by a load: of any remote model it says that it has not to be loaded
    found = await core.source.find(params.model, "", work.cancel)
    if isinstance(found, RemoteModel):
        raise UnsupportedFeature(f"{found.id} is remote; nothing has to be loaded", feature="load of a remote model")
    if params.remember:
        await remember(window, params.model, window.folder(params.workspace))
    shown = Shown(window, params, work, f"Loading {params.model}")
    config = api.LoadConfig(num_ctx=params.context)
    try:
        if switch:
            result = await core.local.load(found.name, shown, work.cancel, config)
        else:
            result = await core.local.load_alone(found.name, shown, work.cancel, config)
    except TurnCancelled:
        raise RequestCancelled from None
    finally:
        shown.done.end()
    window.last_model = result.active.name
    return wire.Loaded(
        model=result.active.name,
        context=result.active.num_ctx,
        device=result.active.device,
        fresh=result.loaded,
        seconds=result.load_seconds,
        reserved_bytes=result.active.reserved_bytes,
    )
