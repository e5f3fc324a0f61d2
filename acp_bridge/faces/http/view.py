"""Shows a turn to a program: collects what it said, and streams it where that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acp_bridge.turn.stages import loading_title, queue_title
from shared.errors import ModelSwitchRequired
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.conversations import events
    from acp_bridge.conversations.face import Question
    from acp_bridge.faces.http.exchange import Output


class Heard:
    """Implements `acp_bridge.turn.interfaces.View`. Nobody can be asked: what would hurt another client is the error
    that says so, unless the server was started with `--switch`.
    """

    question_card = ""

    def __init__(self, output: Output, *, switch: bool, piece: Callable[[api.Event], None] | None = None) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.notices: list[str] = []
        self.always_switch = switch
        self.waits = False
        self._output = output
        self._piece = piece

    def chosen(self, model: str) -> None:
        """See View: the request named it."""

    def request(self, number: int) -> None:
        """See View: there is one, its tools are the program's."""

    def answered(self, result: api.TurnResult, model: str) -> None:
        """See View: the driver gives the result."""

    def show(self, event: events.Shown) -> None:
        """See View: there is no conversation to show it in."""

    def event(self, event: api.Event) -> None:
        """See View."""
        if isinstance(event, api.TextDelta):
            self.text.append(event.text)
        elif isinstance(event, api.ReasoningDelta):
            self.reasoning.append(event.text)
        elif isinstance(event, api.Queued):
            self._output.waits_for = queue_title(event.position, event.ahead)
        elif isinstance(event, api.Loading):
            self._output.waits_for = loading_title(event.model, event.fraction, event.unloads)
        elif isinstance(event, api.Prefill):
            self._output.waits_for = f"reading the prompt ({event.done:,} of {event.total:,} tokens)"
        if self._piece is not None:
            self._piece(event)

    def progress(self, event: api.Event) -> None:
        """See View."""
        self.event(event)

    def waiting(self, title: str) -> None:
        """See View."""
        self._output.waits_for = title

    def notice(self, text: str) -> None:
        """See View."""
        self.notices.append(text)

    async def ask(self, question: Question) -> str | None:
        """See View. Raises ModelSwitchRequired."""
        raise ModelSwitchRequired(active=question.active, requested=question.wanted, in_use_by=question.in_use_by)
