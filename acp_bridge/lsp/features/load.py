"""`modeld/load` and `modeld/switch`: make a model resident, with progress that can be cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.lsp import wire
from acp_bridge.lsp.features.pick import remember
from acp_bridge.lsp.progress import WorkDone, stage_text, turn_event
from acp_bridge.lsp.window import Work
from shared.errors import UnsupportedFeature
from shared.protocol import api
from shared.protocol.faults import RequestCancelled

if TYPE_CHECKING:
    from acp_bridge.lsp.window import Window
    from acp_bridge.session.face import Question


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


class Shown:
    """What the editor sees of one load. Implements `acp_bridge.answers.Listener`."""

    def __init__(self, window: Window, params: wire.LoadParams, work: Work) -> None:
        self.done = WorkDone(window.protocol, params.work_done_token, f"Loading {params.model}")
        self._window = window
        self._token = params.partial_result_token
        self._work = work

    def event(self, event: api.Event) -> None:
        """See Listener."""
        stage = stage_text(event)
        if stage is not None:
            self.done.report(*stage)
        if isinstance(event, api.Loading):
            self._window.loading(self._work, event)
        self._stream(turn_event(event))

    def waiting(self, text: str) -> None:
        """See Listener."""
        self.done.report(text)
        self._stream(wire.WaitingEvent(text=text))

    def notice(self, text: str) -> None:
        """See Listener."""
        self._stream(wire.NoticeEvent(text=text))

    async def ask(self, question: Question) -> str | None:
        """See Listener."""
        return await self._window.consent(question, self._token)

    def _stream(self, event: wire.TurnEvent | None) -> None:
        if event is not None and self._token is not None and not self._work.answered:
            self._window.stream(self._token, event)


async def _load(window: Window, params: wire.LoadParams, work: Work, *, switch: bool) -> wire.Loaded:
    from acp_bridge.answers import Asker
    from acp_bridge.picker import RemoteModel
    from acp_bridge.session.cancel import TurnCancelled

    core = await window.core()
    answers = await window.answers()
    found = await answers.resolve(params.model, work.cancel)
    if isinstance(found, RemoteModel):
        raise UnsupportedFeature(f"{found.id} is remote; nothing has to be loaded", feature="load of a remote model")
    if params.remember:
        await remember(window, params.model, window.folder(params.workspace))
    shown = Shown(window, params, work)
    always = params.consent == "always" or (params.consent == "ask" and window.always_switch)
    asker = Asker(shown, always_switch=always, asks=params.consent != "never")
    config = api.LoadConfig(num_ctx=params.context)
    try:
        if switch:
            result = await core.local.load(found.name, asker, work.cancel, "", config)
        else:
            result = await core.local.load_alone(found.name, asker, work.cancel, config)
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
