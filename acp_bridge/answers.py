"""One answer of a model to a history that the editor holds: resolved strictly, healed once, asked before it hurts.

For faces whose editor owns the conversation. Everything a turn with a saved conversation promises holds here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import msgspec

from acp_bridge.picker import RemoteModel
from acp_bridge.resolve import resolve, resolve_healed
from acp_bridge.session import context
from acp_bridge.session.cancel import Cancel, TurnCancelled
from acp_bridge.session.events import Shown
from acp_bridge.thinking import LEVELS, thinking_levels
from shared.errors import ContextOverflow, ModeldError, ModelSwitchRequired, ResolutionMiss, UnsupportedFeature
from shared.protocol import api
from shared.words import counted

if TYPE_CHECKING:
    from acp_bridge.core import Core
    from acp_bridge.session.bound import BoundLocal
    from acp_bridge.session.face import Question

#: A first look at a cold library takes about this long at most.
FIRST_LOOK_S = 2.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. `messages(sees)` renders the history for a model that sees images or does not.

    `asks`: the user is asked before another client is hurt; `always_switch`: they agreed before. `trim` leaves out
    whole exchanges behind the system's messages when the history does not fit; else that is ContextOverflow.
    """

    model: str
    messages: Callable[[bool], list[dict[str, Any]]]
    images: int = 0
    tools: list[dict[str, Any]] = []
    params: api.Sampling = msgspec.field(default_factory=api.Sampling)
    conversation: str | None = None
    allow_load: bool = True
    allow_switch: bool = True
    asks: bool = True
    always_switch: bool = False
    trim: bool = False


class Listener(Protocol):
    """Who shows what happens."""

    def event(self, event: api.Event) -> None:
        """A stage or a piece of the answer."""
        ...

    def waiting(self, text: str) -> None:
        """What is waited for."""
        ...

    def notice(self, text: str) -> None:
        """The bridge's own words to the user."""
        ...

    async def ask(self, question: Question) -> str | None:
        """The id of the answer, None when the user dismissed it."""
        ...


class Asker:
    """Implements `acp_bridge.session.local.Asker` for work without a conversation.

    With `asks` false nobody is asked: what would need it ends as ModelSwitchRequired.
    """

    def __init__(self, listener: Listener, *, always_switch: bool = False, asks: bool = True) -> None:
        self.always_switch = always_switch
        self._asks = asks
        self.waits = False
        self.show: Callable[[Shown], None] = _unseen  # a question is shown by asking it: there is no card beside it
        self._listener = listener

    async def ask(self, question: Question) -> str | None:
        """See Asker. Raises ModelSwitchRequired."""
        if not self._asks:
            raise ModelSwitchRequired(active=question.active, requested=question.wanted, in_use_by=question.in_use_by)
        return await self._listener.ask(question)

    def waiting(self, title: str) -> None:
        """See Asker."""
        self._listener.waiting(title)

    def progress(self, event: api.Event) -> None:
        """See Asker."""
        self._listener.event(event)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. `left_out` counts the messages left out; `always_switch`: the user agreed for this session."""

    result: api.TurnResult
    left_out: int = 0
    always_switch: bool = False


class Answers:
    """Runs requests on the core's models."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def resolve(self, name: str, cancel: Cancel) -> api.LibraryRow | RemoteModel:
        """What answers under this name. Raises the typed errors of a resolution; never another model."""
        core = self._core
        if core.models.row(name) is None and not core.models.looked.is_set():
            with anyio.move_on_after(FIRST_LOOK_S):  # the first look at the library may not be done
                await cancel.race(core.models.looked.wait)
        try:
            return await cancel.race(lambda: resolve_healed(lambda: self._resolve(name), core.models.reconcile))
        except ResolutionMiss:
            if core.daemon.connected:
                raise
            raise core.daemon.detection.error() from None  # what is missing is modeld, not the model

    def _resolve(self, name: str) -> api.LibraryRow | RemoteModel:
        models = self._core.models
        wanted = name or models.default
        return resolve(wanted, models.rows, models.remotes, models.missing(wanted))

    async def answer(self, request: Request, listener: Listener, cancel: Cancel) -> Answered:
        """One answer. A cancel ends it as `cancelled`, never as an error. Raises the typed errors."""
        try:
            return await self._answer(request, listener, cancel)
        except TurnCancelled:
            return Answered(result=_cancelled(request.model))
        except ModeldError:
            if cancel.requested:
                return Answered(result=_cancelled(request.model))  # an error that a cancel caused is the cancel
            raise

    async def _answer(self, request: Request, listener: Listener, cancel: Cancel) -> Answered:
        found = await self.resolve(request.model, cancel)
        if isinstance(found, RemoteModel):
            return await self._remote(found, request, listener, cancel)
        require_thinking(found, request.params.thinking)
        asker = Asker(listener, always_switch=request.always_switch, asks=request.asks)
        model = self._core.bound(found)
        if request.images and model.may_see and request.allow_load:
            await self._load(found.name, request, asker, cancel)
        if request.images and not model.sees:
            listener.notice(unseen_text(request.images, found.name))
        messages = request.messages(model.sees)
        left = 0
        if request.trim:
            left = await self._excess(model, request, messages, model.window, cancel)
            if left:
                listener.notice(trimmed_text(left, model.window))
        try:
            result = await self._generate(found.name, request, messages, left, listener, asker, cancel)
        except ContextOverflow as error:
            if not request.trim or not error.context:
                raise
            again = await self._excess(model, request, messages, int(error.context), cancel, certain=True)
            if again <= left:
                raise
            left = again
            listener.notice(trimmed_text(left, int(error.context)))
            result = await self._generate(found.name, request, messages, left, listener, asker, cancel)
        return Answered(result=result, left_out=left, always_switch=asker.always_switch)

    async def _remote(self, found: RemoteModel, request: Request, listener: Listener, cancel: Cancel) -> Answered:
        if request.images and not found.vision:
            listener.notice(unseen_text(request.images, found.id))
        params = api.TurnParams(
            model=found.id, messages=request.messages(found.vision), tools=request.tools, params=request.params
        )
        client = self._core.providers.client(found)
        return Answered(result=await client.turn(params, listener.event, cancel))

    async def _load(self, name: str, request: Request, asker: Asker, cancel: Cancel) -> None:
        if request.allow_switch:
            await self._core.local.load(name, asker, cancel, "")
        else:
            await self._core.local.load_alone(name, asker, cancel)

    async def _generate(
        self,
        model: str,
        request: Request,
        messages: list[dict[str, Any]],
        left: int,
        listener: Listener,
        asker: Asker,
        cancel: Cancel,
    ) -> api.TurnResult:
        params = api.TurnParams(
            model=model,
            messages=_without(messages, left),
            tools=request.tools,
            params=request.params,
            conversation=request.conversation,
            allow_load=request.allow_load,
            allow_switch=request.allow_switch,
            consent=request.always_switch,
        )

        def seen(event: api.Event) -> None:
            if not cancel.requested:
                listener.event(event)

        daemon, local = self._core.daemon, self._core.local
        if request.allow_load and request.allow_switch:
            return await local.generate(params, seen, cancel, asker, "")
        await daemon.wait(cancel, asker.waiting)
        return await daemon.turn(params, seen, cancel)

    async def _excess(
        self,
        model: BoundLocal,
        request: Request,
        messages: list[dict[str, Any]],
        window: int,
        cancel: Cancel,
        *,
        certain: bool = False,
    ) -> int:
        """How many messages behind the system's have to be left out for a `window` of tokens (0: not known yet)."""
        if not window or (not certain and context.estimate(messages) < window - context.reserve(window)):
            return 0
        counted = await cancel.race(lambda: model.count(messages, request.tools))
        head = context.head_length(messages)
        return context.drop(messages[head:], counted.each[head:], counted.total, window)


def _unseen(event: Shown) -> None:
    """Nobody looks."""


def require_thinking(row: api.LibraryRow, level: str | None) -> None:
    """Raises UnsupportedFeature for a level that the model does not have. Pure."""
    if level is not None and level not in (thinking_levels(row) or LEVELS[:1]):
        raise UnsupportedFeature(feature=f"thinking level {level!r}")


def unseen_text(count: int, model: str) -> str:
    """Told when images are not passed on. Pure."""
    images = "The image is" if count == 1 else f"The {count} images are"
    return f"{images} left out: {model} does not see images."


def trimmed_text(count: int, window: int) -> str:
    """Told when messages were left out. Pure."""
    first = "message no longer fits" if count == 1 else f"{count:,} messages no longer fit"
    left = "was" if count == 1 else "were"
    return f"The first {first} the window of {counted(window, 'token')} and {left} left out."


def _without(messages: Sequence[dict[str, Any]], left: int) -> list[dict[str, Any]]:
    head = context.head_length(messages)
    return [*messages[:head], *messages[head + left :]]


def _cancelled(model: str) -> api.TurnResult:
    return api.TurnResult(
        finish_reason="cancelled", model=model, usage=api.Usage(), timings=api.Timings(), generation=0
    )
