"""The loop of a turn, for every face: prepare, fit, request, tools, end. Each rule of a turn stands here once.

A face gives the history, the tools and a view, and gets the end; what is asked of the user goes through its view.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from acp_bridge.cancel import TurnCancelled
from acp_bridge.models.picker import RemoteModel
from acp_bridge.models.thinking import level_of
from acp_bridge.turn import context
from acp_bridge.turn.model.holds import NEXT_TURN_S, Holds
from acp_bridge.turn.sentences import (
    BASE_MODEL,
    NO_WORD,
    ONLY_THOUGHTS,
    REPEATED,
    images_left_out_text,
    left_out_text,
    rounds_text,
)
from shared.errors import ContextOverflow, ModeldError, UnsupportedFeature
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.turn.history import History
    from acp_bridge.turn.interfaces import Model, Tools, View
    from acp_bridge.turn.model.source import ModelSource

#: Model calls in one prompt turn, tools between them.
MAX_REQUESTS = 30
#: How often a request that is refused as too long is made shorter.
MAX_REFITS = 3
#: Ends of an answer that a person waits for; a cancel is their own, and a refusal is reported as one.
WORDLESS_ENDS = ("stop", "length", "context_full")

Equip = Callable[["api.LibraryRow | RemoteModel", "Model"], Awaitable["Tools"]]
#: Why a turn ended: the model said all, its answer became a loop, the tools ended it (it goes in circles), or its
#: rounds are used up.
Why = Literal["answered", "repeated", "tools", "rounds"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. `pick` is what was picked here ("" when nothing): only as the pick a model of another machine
    answers. `named` is the model that the request names, "" for the pick or the default. `run` names the hold of its
    tools.

    `prompt` is a text to continue, in the place of the history. `hold_s`: how long the model is held for a program
    that runs the tools itself.

    `exact`: a thinking level that the model lacks is an error; else it is reported, and the model uses its default.
    """

    pick: str
    run: str
    named: str = ""
    params: api.Sampling = msgspec.field(default_factory=api.Sampling)
    conversation: str | None = None
    prompt: str | None = None
    hold_s: float = msgspec.field(default_factory=lambda: NEXT_TURN_S)
    exact: bool = False
    allow_load: bool = True
    allow_switch: bool = True


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended. `result` is that of its last request; `model` is "" when none was found before a cancel."""

    result: api.TurnResult
    model: str = ""
    why: Why = "answered"


class Driver:
    """Drives one turn. `equip` gives the tools once the model is known (and loaded, where that was needed first)."""

    def __init__(
        self, source: ModelSource, holds: Holds, job: Job, history: History, view: View, cancel: Cancel, equip: Equip
    ) -> None:
        self._source = source
        self._holds = holds
        self._job = job
        self._history = history
        self._view = view
        self._cancel = cancel
        self._equip = equip
        self._model: Model | None = None
        self._params = job.params
        self._answer = ""  # what has come of the present answer: "thoughts", then "words"
        self._lent = False  # the editor runs the tools: the hold outlives this turn

    async def run(self) -> Ended:
        """From the job to its end. A cancel ends it as `cancelled`, never as an error. Raises the typed errors."""
        try:
            return await self._run()
        except TurnCancelled:
            return self._cancelled()
        except ModeldError:
            if self._cancel.requested:
                return self._cancelled()  # an error that a cancel caused is the cancel
            raise
        finally:
            if not self._lent:
                self._holds.end(self._job.run)

    def _cancelled(self) -> Ended:
        name = self._model.name if self._model is not None else ""
        result = api.TurnResult(
            finish_reason="cancelled",
            model=name or self._job.named or self._job.pick,
            usage=api.Usage(),
            timings=api.Timings(),
            generation=0,
        )
        return Ended(result=result, model=name)

    async def _run(self) -> Ended:
        model, tools = await self._prepare()
        for number in range(1, MAX_REQUESTS + 1):
            self._cancel.check()
            self._view.request(number)
            result = await self._generate(model, tools)
            self._view.answered(result, model.name)
            if self._cancel.requested:
                result = msgspec.structs.replace(result, finish_reason="cancelled")
            if result.ended_by == "repetition" and not self._cancel.requested:
                self._view.notice(REPEATED)
                return Ended(result=result, model=model.name, why="repeated")
            if result.finish_reason != "tool_calls" or not result.tool_calls:
                return Ended(result=self._worded(result), model=model.name)
            if tools.elsewhere:
                self._lent = True
                self._holds.begin(self._job.run, model, self._job.hold_s)
                return Ended(result=result, model=model.name)
            self._holds.begin(self._job.run, model)
            if not await tools.run(result.tool_calls):
                return Ended(result=result, model=model.name, why="tools")
        self._view.notice(rounds_text(MAX_REQUESTS))
        return Ended(result=result, model=model.name, why="rounds")

    def _worded(self, result: api.TurnResult) -> api.TurnResult:
        """The result; where nobody can read a word of it, that is reported."""
        waits = self._job.prompt is None and result.finish_reason in WORDLESS_ENDS
        if self._answer == "words" or not waits:
            return result
        self._view.notice(ONLY_THOUGHTS if self._answer else NO_WORD)
        return msgspec.structs.replace(result, ended_by="thoughts" if self._answer else "nothing")

    # --- prepare -------------------------------------------------------------------------------

    async def _prepare(self) -> tuple[Model, Tools]:
        """What answers, and the tools it gets. Raises the typed errors of a resolution; never another model."""
        job, history, view = self._job, self._history, self._view
        found = await self._source.find(job.pick, job.named, self._cancel)
        model = self._model = self._source.bound(found)
        view.chosen(model.name)
        self._params = msgspec.structs.replace(job.params, thinking=self._level(found, model.name))
        if history.has_images and model.may_see and job.allow_load:
            await model.load(
                view, self._cancel, allow_switch=job.allow_switch
            )  # whether it supports images is known then
        tools = await self._equip(found, model)
        chats = job.prompt is None
        if not isinstance(found, RemoteModel) and not found.has_template and history.begins and chats:
            view.notice(BASE_MODEL.format(model=model.name))
        if history.new_images and not model.supports_images:
            view.notice(images_left_out_text(history.new_images, model.name))
        return model, tools

    def _level(self, found: api.LibraryRow | RemoteModel, model: str) -> str | None:
        """The thinking level to send. Raises UnsupportedFeature where it has to be exact and the model lacks it."""
        try:
            return level_of(found, self._job.params.thinking, model)
        except UnsupportedFeature as error:
            if self._job.exact:
                raise
            self._view.notice(error.message)
            return None

    # --- fit and request -----------------------------------------------------------------------

    async def _generate(self, model: Model, tools: Tools) -> api.TurnResult:
        """One request, and some more with less where the model knows better than the count what fits."""
        await self._fit(model, tools)
        for _ in range(MAX_REFITS):
            try:
                return await self._request(model, tools)
            except ContextOverflow as overflow:
                if not await self._refit(model, tools, overflow):
                    raise
        return await self._request(model, tools)

    async def _fit(self, model: Model, tools: Tools) -> None:
        """Leave out what does not fit; counting is skipped while a cheap upper guess fits."""
        window = model.window
        if not window or not self._history.trims:
            return
        if context.estimate(self._history.messages(supports_images=model.supports_images)) < window - context.reserve(
            window
        ):
            return
        try:
            await self._leave_out(model, tools, window)
        except ContextOverflow:
            if model.exact:
                raise
            # nobody measured it: the model itself says whether it fits

    async def _refit(self, model: Model, tools: Tools, overflow: ContextOverflow) -> bool:
        """Leave out more of what the model refused; false where there is nothing to leave out."""
        if not self._history.trims:
            return False
        window = int(overflow.context or 0) or model.window
        try:
            return await self._leave_out(model, tools, window)
        except ContextOverflow:
            if model.exact and window:
                raise
            raise overflow from None  # in the words of who refused it

    async def _leave_out(self, model: Model, tools: Tools, window: int) -> bool:
        """Whole exchanges at the head, so that the rest fits `window` tokens (0: fewer than now).

        Raises ContextOverflow when the last one alone does not fit.
        """
        history = self._history
        messages = history.messages(supports_images=model.supports_images)
        counted = await self._cancel.race(lambda: model.count(messages, tools.schemas))
        head = context.head_length(messages)
        leave = context.drop(messages[head:], counted.each[head:], counted.total, window or counted.total)
        if leave:
            self._view.notice(left_out_text(history.leave_out(leave), window, history.remedy))
        return leave > 0

    async def _request(self, model: Model, tools: Tools) -> api.TurnResult:
        job = self._job
        self._answer = ""
        params = api.TurnParams(
            model=model.name,
            messages=self._history.messages(supports_images=model.supports_images),
            tools=tools.schemas,
            params=self._params,
            conversation=job.conversation,
            prompt=job.prompt,
            allow_load=job.allow_load,
            allow_switch=job.allow_switch,
            consent=self._view.always_switch,
        )
        return await model.generate(params, self._event, self._cancel, self._view)

    def _event(self, event: api.Event) -> None:
        if isinstance(event, api.TextDelta) and event.text.strip():
            self._answer = "words"
        elif isinstance(event, api.ReasoningDelta):
            self._answer = self._answer or "thoughts"
        if not self._cancel.requested:
            self._view.event(event)
