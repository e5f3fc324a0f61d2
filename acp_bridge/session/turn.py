"""One prompt turn, from the user's parts to its end: messages, model, tools, and everything shown on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.abc
import msgspec

from acp_bridge.session import context
from acp_bridge.session.cancel import Cancel, TurnCancelled
from acp_bridge.session.events import (
    CardStatus,
    ImagePart,
    Part,
    Remark,
    Said,
    Shown,
    Stop,
    Thought,
    Titled,
    TurnEnded,
    Used,
    UserSaid,
)
from acp_bridge.session.recorder import FLUSH_S, Recorder
from acp_bridge.session.stages import Stages
from acp_bridge.session.state import messages_of, title_of
from shared.errors import ContextOverflow, ModeldError
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.session.face import Question

#: Model calls in one prompt turn, tools between them.
MAX_REQUESTS = 30

#: How long the end of a turn waits for the disk, to tell what could not be saved.
SAVED_WITHIN_S = 1.0

SUMMARY_TOKENS = 512
SUMMARY_REQUEST = (
    "Summarise our conversation so far for yourself: what was asked, what was decided, which files and names matter, "
    "and what is still open. Write only the summary."
)

STOPS: dict[str, Stop] = {
    "stop": "end_turn",
    "tool_calls": "end_turn",
    "length": "max_tokens",
    "context_full": "max_tokens",
    "cancelled": "cancelled",
    "cancelled_by_other": "end_turn",
    "refusal": "refusal",
}


class Model(Protocol):
    """What answers: the local slot or a remote provider."""

    name: str
    system: str

    @property
    def sees(self) -> bool:
        """Whether it takes images."""
        ...

    @property
    def window(self) -> int:
        """Tokens, 0 while it is not known."""
        ...

    async def generate(
        self, params: api.TurnParams, on_event: Callable[[api.Event], None], cancel: Cancel, turn: Turn
    ) -> api.TurnResult:
        """Answer once. Raises the typed errors."""
        ...

    async def hold(self, run: str) -> None:
        """Keep others from switching the model away while tools run; until cancelled."""
        ...

    async def count(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> api.CountResult:
        """Tokens of each message and of the whole, as it would be sent."""
        ...


class Tools(Protocol):
    """The tools of the conversation. `schemas` has the chat-completion shape; empty when there are none."""

    schemas: list[dict[str, Any]]

    async def run(self, calls: Sequence[api.ToolCall], message: str, turn: Turn) -> bool:
        """Run the calls and record their answers. False ends the turn (the model goes in circles)."""
        ...


class NoTools:
    """A turn without tools."""

    schemas: list[dict[str, Any]] = []

    async def run(self, calls: Sequence[api.ToolCall], message: str, turn: Turn) -> bool:
        """A model that calls tools nobody offered has ended its turn."""
        del calls, message, turn
        return False


class Turn:
    """The run of one prompt. Everything it shows goes through `show`, everything kept through the recorder."""

    def __init__(
        self,
        *,
        turn_id: str,
        recorder: Recorder,
        cancel: Cancel,
        thinking: str | None = None,
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
        self._thinking = thinking
        self.numbers: dict[str, Any] = {}
        self.parts: list[Part] = []
        self._ask = ask
        self._stages = Stages(turn_id, "")
        self._message = turn_id
        self._requests = 0
        self._group: anyio.abc.TaskGroup | None = None

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
        """Show how far work outside of a turn is (a load that a command asked for)."""
        for card in self._stages.see(event):
            self.show(card)

    def finish_stages(self, status: CardStatus) -> None:
        """Close the card of the running stage."""
        for card in self._stages.close(status):
            self.show(card)

    async def summarise(self, model: Model) -> str:
        """A summary of the conversation by the model, shown nowhere else. Raises the typed errors."""
        pieces: list[str] = []

        def collect(event: api.Event) -> None:
            if isinstance(event, api.TextDelta):
                pieces.append(event.text)
            else:
                self.progress(event)

        await self._fit(model, [], model.window)
        params = api.TurnParams(
            model=model.name,
            messages=[*self._messages(model), {"role": "user", "content": SUMMARY_REQUEST}],
            params=api.Sampling(max_tokens=SUMMARY_TOKENS),
            conversation=self.recorder.conversation.id,
        )
        await model.generate(params, collect, self.cancel, self)
        self.cancel.check()
        return "".join(pieces).strip()

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

    async def run(self, parts: list[Part], prepare: Callable[[], Any]) -> TurnEnded:
        """From the user's parts to the end. `prepare` gives (model, tools) and may wait; its errors end the turn."""
        self.parts = parts
        self._begin(parts)
        ended = TurnEnded(stop="failed")
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(self._keep_saving)
                try:
                    ended = await self._answer(prepare)
                except TurnCancelled:
                    ended = TurnEnded(stop="cancelled", numbers=self.numbers)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            raise sole(error) from None
        finally:
            self.finish_stages("completed" if ended.stop != "failed" else "failed")
            self.recorder.add(ended)
            self.recorder.touch()
        return ended

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

    async def _answer(self, prepare: Callable[[], Any]) -> TurnEnded:
        model, tools = await prepare()
        self._stages = Stages(self.id, model.name)
        self._say_unseen(model)
        while True:
            self.cancel.check()
            self._requests += 1
            self._message = f"{self.id}-{self._requests}"
            result = await self._generate(model, tools.schemas)
            self._account(result, model)
            if self.cancel.requested or result.finish_reason == "cancelled":
                return TurnEnded(stop="cancelled", model=model.name, numbers=self.numbers)
            if result.finish_reason != "tool_calls" or not result.tool_calls:
                return self._ended(result, model)
            if self._requests == 1 and self._group is not None:
                self._group.start_soon(model.hold, self.id)
            if not await tools.run(result.tool_calls, self._message, self):
                return TurnEnded(stop="end_turn", model=model.name, numbers=self.numbers)
            if self._requests >= MAX_REQUESTS:
                self.remark(f"Stopped after {MAX_REQUESTS} rounds of tools. Send a message to go on.")
                return TurnEnded(stop="max_turn_requests", model=model.name, numbers=self.numbers)

    def _say_unseen(self, model: Model) -> None:
        """What of the user's message the model will not get."""
        count = sum(isinstance(part, ImagePart) for part in self.parts)
        if count and not model.sees:
            images = "The image is" if count == 1 else f"The {count} images are"
            self.remark(f"{images} left out: {model.name} does not see images.")

    def _ended(self, result: api.TurnResult, model: Model) -> TurnEnded:
        if result.finish_reason == "context_full":
            self.remark(f"The window of {result.num_ctx:,} tokens is full. `/compact` makes room.")
        elif result.finish_reason == "cancelled_by_other":
            self.remark(f"The answer was ended by {result.by or 'another client'}.")
        return TurnEnded(stop=STOPS[result.finish_reason], model=model.name, numbers=self.numbers)

    def _account(self, result: api.TurnResult, model: Model) -> None:
        total = self.numbers
        for name in ("reused", "prefilled", "generated"):
            total[name] = total.get(name, 0) + getattr(result.usage, name)
        total["model"] = result.model or model.name
        total.setdefault("timings", msgspec.to_builtins(result.timings))
        total["timings"]["tokens_per_s"] = result.timings.tokens_per_s
        if result.num_ctx:
            usage = result.usage
            self.show(Used(used=usage.reused + usage.prefilled + usage.generated, size=result.num_ctx))
        if result.warnings:
            total["warnings"] = result.warnings

    # --- one request ---------------------------------------------------------------------------

    async def _generate(self, model: Model, tools: list[dict[str, Any]]) -> api.TurnResult:
        await self._fit(model, tools, model.window)
        try:
            return await self._request(model, tools)
        except ContextOverflow as error:
            overflow = error
        before = self.recorder.conversation.dropped
        await self._fit(model, tools, int(overflow.context or 0), certain=True)
        if self.recorder.conversation.dropped == before:
            raise overflow
        return await self._request(model, tools)

    async def _request(self, model: Model, tools: list[dict[str, Any]]) -> api.TurnResult:
        conversation = self.recorder.conversation
        params = api.TurnParams(
            model=model.name,
            messages=self._messages(model),
            tools=tools,
            params=api.Sampling(thinking=self._thinking),
            conversation=conversation.id,
        )
        try:
            return await model.generate(params, self._event, self.cancel, self)
        except ModeldError:
            self.cancel.check()  # an error that a cancel caused is the cancel
            raise

    def _messages(self, model: Model) -> list[dict[str, Any]]:
        conversation = self.recorder.conversation
        self.recorder.settle()
        kept = messages_of(conversation.events, sees=model.sees)[conversation.dropped :]
        return [{"role": "system", "content": model.system}, *kept] if model.system else kept

    async def _fit(self, model: Model, tools: list[dict[str, Any]], window: int, *, certain: bool = False) -> None:
        """Leave out what does not fit `window` tokens; counting is skipped while a cheap upper guess fits."""
        messages = self._messages(model)
        if not window or (not certain and context.estimate(messages) < window - context.reserve(window)):
            return
        counted = await self.cancel.race(lambda: model.count(messages, tools))
        head = 1 if model.system else 0
        each = counted.each[head:]
        leave = context.drop(messages[head:], each, counted.total, window)
        if leave:
            conversation = self.recorder.conversation
            conversation.dropped += leave
            self.remark(context.left_out(conversation.dropped, window))

    def _event(self, event: api.Event) -> None:
        if self.cancel.requested:
            return
        for card in self._stages.see(event):
            self.show(card)
        if isinstance(event, api.TextDelta):
            self.recorder.grow("said", self._message, event.text)
            self.show(Said(message=self._message, text=event.text))
        elif isinstance(event, api.ReasoningDelta):
            self.recorder.grow("thought", self._message, event.text)
            self.show(Thought(message=self._message, text=event.text))


def sole(error: BaseException) -> BaseException:
    """The one exception inside nested groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
