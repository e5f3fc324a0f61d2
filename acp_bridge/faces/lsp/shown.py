"""How a load or a turn shows itself in the editor while it runs: work-done progress and streamed events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.progress import WorkDone, stage_text, turn_event
from shared.errors import ModelSwitchRequired
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.conversations import events
    from acp_bridge.conversations.face import Question
    from acp_bridge.faces.lsp.window import Window, Work


class Shown:
    """What the editor sees of one load or turn. Implements `acp_bridge.turn.interfaces.View`.

    With the consent `never` nobody is asked: what would need it ends as ModelSwitchRequired.
    """

    def __init__(self, window: Window, params: wire.LoadParams | wire.TurnParams, work: Work, title: str) -> None:
        self.done = WorkDone(window.connection, params.work_done_token, title)
        self.question_card = ""
        self.waits = False
        self.always_switch = params.consent == "always" or (params.consent == "ask" and window.always_switch)
        self._asks = params.consent == "ask"
        self._window = window
        self._token = params.partial_result_token
        self._work = work

    def chosen(self, model: str) -> None:
        """See View: the result names it."""

    def request(self, number: int) -> None:
        """See View: there is one, its tools are the editor's."""

    def answered(self, result: api.TurnResult, model: str) -> None:
        """See View: the result is the request's own."""

    def show(self, event: events.Shown) -> None:
        """See View: a question is shown by asking it, without a card beside it."""

    def event(self, event: api.Event) -> None:
        """See View."""
        stage = stage_text(event)
        if stage is not None:
            self.done.report(*stage)
        if isinstance(event, api.Loading):
            self._window.loading(self._work, event)
        else:
            self._window.loaded(self._work)  # the turn has gone on
        self._stream(turn_event(event))

    def progress(self, event: api.Event) -> None:
        """See View."""
        self.event(event)

    def waiting(self, title: str) -> None:
        """See View."""
        self.done.report(title)
        self._stream(wire.WaitingEvent(text=title))

    def notice(self, text: str) -> None:
        """See View."""
        self._stream(wire.NoticeEvent(text=text))

    async def ask(self, question: Question) -> str | None:
        """See View. Raises ModelSwitchRequired where nobody may be asked."""
        if not self._asks:
            raise ModelSwitchRequired(active=question.active, requested=question.wanted, in_use_by=question.in_use_by)
        return await self._window.consent(question, self._token)

    def _stream(self, event: wire.TurnEvent | None) -> None:
        if event is not None and self._token is not None and not self._work.answered:
            self._window.stream(self._token, event)
