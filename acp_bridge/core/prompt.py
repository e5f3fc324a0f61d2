"""One prompt of a conversation that the bridge keeps: what the driver does is recorded and shown as cards and text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import msgspec

from acp_bridge.cancel import Cancel, TurnCancelled
from acp_bridge.conversations.events import (
    CardStatus,
    Part,
    Remark,
    Said,
    Shown,
    Staged,
    Stop,
    Thought,
    Titled,
    TurnEnded,
    Used,
    UserSaid,
)
from acp_bridge.conversations.recorder import FLUSH_S, Recorder
from acp_bridge.conversations.state import title_of
from acp_bridge.turn.stages import Stages
from shared.diagnosis.defect import sole
from shared.errors import ModeldError
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.conversations.face import Question
    from acp_bridge.tools.runner import ToolRunner
    from acp_bridge.turn.driver import Ended, Why

#: How long the end of a turn waits for the disk, to tell what could not be saved.
SAVED_WITHIN_S = 1.0

STOPS: dict[str, Stop] = {
    "stop": "end_turn",
    "tool_calls": "end_turn",
    "length": "max_tokens",
    "context_full": "max_tokens",
    "cancelled": "cancelled",
    "cancelled_by_other": "end_turn",
    "refusal": "refusal",
}
STAGES = (api.Queued, api.Loading, api.Prefix, api.Prefill, api.Thinking, api.Generating)
#: Ends that the answer itself does not tell.
ENDS: dict[Why, Stop] = {"repeated": "end_turn", "tools": "end_turn", "rounds": "max_turn_requests"}


class TurnTools:
    """The tools of one turn. Implements `acp_bridge.turn.interfaces.Tools`."""

    elsewhere = False

    def __init__(self, runner: ToolRunner, turn: Turn) -> None:
        self.schemas = runner.schemas
        self._runner = runner
        self._turn = turn

    async def run(self, calls: Sequence[api.ToolCall]) -> bool:
        """See Tools."""
        return await self._runner.run(calls, self._turn.message, self._turn)


class Turn:
    """Shows and records one prompt. Implements `acp_bridge.turn.interfaces.View`.

    Everything it shows goes through `show`, everything kept through the recorder. `message` names what the model says
    now.
    """

    def __init__(
        self,
        *,
        turn_id: str,
        recorder: Recorder,
        cancel: Cancel,
        show: Callable[[Shown], None],
        ask: Callable[[Question], Any],
        always_switch: bool = False,
    ) -> None:
        self.id = turn_id
        self.recorder = recorder
        self.cancel = cancel
        self.show = show
        self.always_switch = always_switch
        self.waits = False
        self.question_card = f"{turn_id}-switch"
        self.message = turn_id
        self.numbers: dict[str, Any] = {}
        self._ask = ask
        self._stages = Stages(turn_id, "")
        self._aside: list[str] | None = None

    # --- for the parts of a turn ---------------------------------------------------------------

    async def ask(self, question: Question) -> str | None:
        """Ask the user; TurnCancelled when the turn is cancelled meanwhile."""
        answer: str | None = await self.cancel.race(lambda: self._ask(question))
        return answer

    def waiting(self, title: str) -> None:
        """Show that the turn waits."""
        for card in self._stages.waiting(title):
            self.show(card)

    def progress(self, event: api.Event) -> None:
        """Show how far the work is, also that outside of a turn (a load that a command asked for)."""
        if isinstance(event, STAGES):
            self.show(Staged(model=self._stages.model, stage=event))
        for card in self._stages.see(event):
            self.show(card)

    def finish_stages(self, status: CardStatus) -> None:
        """Close the card of the running stage."""
        for card in self._stages.close(status):
            self.show(card)

    def chosen(self, model: str) -> None:
        """See View."""
        self._stages.model = model

    def request(self, number: int) -> None:
        """See View."""
        self.message = f"{self.id}-{number}"

    def event(self, event: api.Event) -> None:
        """See View."""
        self.progress(event)
        if self._aside is not None:
            self._aside += [event.text] if isinstance(event, api.TextDelta) else []
        elif isinstance(event, api.TextDelta):
            self.recorder.grow("said", self.message, event.text)
            self.show(Said(message=self.message, text=event.text))
        elif isinstance(event, api.ReasoningDelta):
            self.recorder.grow("thought", self.message, event.text)
            self.show(Thought(message=self.message, text=event.text))

    def notice(self, text: str) -> None:
        """See View."""
        self.remark(text)

    def answered(self, result: api.TurnResult, model: str) -> None:
        """See View."""
        if self._aside is not None:
            return
        total = self.numbers
        for name in ("reused", "prefilled", "generated"):
            total[name] = total.get(name, 0) + getattr(result.usage, name)
        total["model"] = result.model or model
        total.setdefault("timings", msgspec.to_builtins(result.timings))
        total["timings"]["tokens_per_s"] = result.timings.tokens_per_s
        if result.num_ctx:
            usage = result.usage
            self.show(Used(used=usage.reused + usage.prefilled + usage.generated, size=result.num_ctx))
        if result.warnings:
            total["warnings"] = result.warnings
        for text in result.warnings:
            self.remark(text)

    def remark(self, text: str) -> None:
        """Say something to the user that is not the model's."""
        remark = Remark(message=f"{self.id}-remark-{len(self.recorder.conversation.events)}", text=text)
        self.recorder.add(remark)
        self.show(remark)

    async def say_unsaved(self) -> None:
        """Say what could not be saved while it can still be copied. A slow disk is not waited for."""
        try:
            with anyio.move_on_after(SAVED_WITHIN_S):
                await self.recorder.saved()
        except ModeldError as error:
            self.remark(f"Not saved yet: {error.message}. It is written with what comes next, once that is possible.")

    # --- the run -------------------------------------------------------------------------------

    async def run(self, parts: list[Part], drive: Callable[[], Awaitable[Ended]]) -> TurnEnded:
        """From the user's parts to the end of what `drive` does; its errors end the turn."""
        self._begin(parts)
        ended = TurnEnded(stop="failed")
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_saving)
                ended = self._ended(await drive())
                group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            raise sole(error) from None
        finally:
            self.finish_stages("completed" if ended.stop != "failed" else "failed")
            self.recorder.add(ended)
            self.recorder.touch()
        return ended

    async def aside(self, drive: Callable[[], Awaitable[Ended]]) -> str:
        """What the model says in a request of the bridge's own, which is neither shown nor recorded."""
        said = self._aside = []
        try:
            ended = await drive()
        finally:
            self._aside = None
        if ended.result.finish_reason == "cancelled":
            raise TurnCancelled
        return "".join(said).strip()

    def _begin(self, parts: list[Part]) -> None:
        conversation = self.recorder.conversation
        self.recorder.add(UserSaid(message=self.id, parts=parts))
        if not conversation.title:
            conversation.title = title_of(parts)
            self.show(Titled(title=conversation.title))
        self.recorder.touch()

    async def _keep_saving(self) -> None:
        while True:
            await anyio.sleep(FLUSH_S)
            self.recorder.flush()

    def _ended(self, ended: Ended) -> TurnEnded:
        result = ended.result
        if result.finish_reason == "context_full":
            self.remark(f"The window of {result.num_ctx:,} tokens is full. `/compact` makes room.")
        elif result.finish_reason == "cancelled_by_other":
            self.remark(f"The answer was ended by {result.by or 'another client'}.")
        stop = ENDS.get(ended.why) or STOPS[result.finish_reason]
        return TurnEnded(stop=stop, model=ended.model, numbers=self.numbers)
