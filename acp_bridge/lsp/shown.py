"""How a load or a turn shows itself in the editor while it runs: work-done progress and streamed events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.lsp import wire
from acp_bridge.lsp.progress import WorkDone, stage_text, turn_event
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.lsp.window import Window, Work
    from acp_bridge.session.face import Question


class Shown:
    """What the editor sees of one load or turn. Implements `acp_bridge.answers.Listener`."""

    def __init__(self, window: Window, params: wire.LoadParams | wire.TurnParams, work: Work, title: str) -> None:
        self.done = WorkDone(window.protocol, params.work_done_token, title)
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
        else:
            self._window.loaded(self._work)  # the turn has gone on
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
