"""One editor window: who it is, what it runs, and the core behind it. Knows the editor, not the methods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar

import anyio
import msgspec

from acp_bridge.cancel import Cancel
from acp_bridge.conversations.face import CANNOT_ASK, NOT_UNDERSTOOD, CannotAsk
from acp_bridge.faces.lsp import wire
from acp_bridge.models.picker import NOTHING, current_model
from acp_bridge.turn.model.switch_question import SWITCH_ALWAYS
from acp_bridge.turn.stages import loading_title
from shared.errors import ModeldError
from shared.protocol.faults import MethodNotFound

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_bridge.conversations.face import Question
    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.connection import EditorConnection
    from shared.paths import DataRoot
    from shared.protocol import api
    from shared.settings import Settings

R = TypeVar("R")
#: Once its work was cancelled, the window goes on listening this long at most for the daemon's own end of it.
AFTERMATH_S = 10.0


class Work:
    """Something long that the window runs: it can be cancelled by its tokens or its model."""

    def __init__(self, *tokens: wire.Token | None) -> None:
        self.tokens = [token for token in tokens if token is not None]
        self.model = ""
        self.cancel = Cancel()
        self.answered = False  # the editor has its answer: nothing more is shown of this work
        self.loads: wire.Progress | None = None


class Window:
    """The state of one connection. `core` waits until it is there."""

    def __init__(self, connection: EditorConnection, root: DataRoot, settings: Settings) -> None:
        self.connection = connection
        self.root = root
        self.settings = settings
        self.options = wire.Options()
        self.editor = "an editor"
        self.workspace = ""
        self.pid = 0
        self.speeds: dict[str, float] = {}
        self.always_switch = False
        self.last_model = ""
        self.works: set[Work] = set()
        self.fill: Cancel | None = None
        self.touch: Callable[[], None] = _nothing
        self.changed: Callable[[], None] = _nothing
        self.group: TaskGroup | None = None
        self._core: Core | None = None
        self._problem = ModeldError()
        self._ready = anyio.Event()

    @property
    def name(self) -> str:
        """How other clients see this window: the editor and its folder, since two windows are two clients."""
        folder = PurePath(self.workspace).name if self.workspace else f"window {self.pid}"
        return f"{self.editor} ({folder})"

    def become_ready(self, core: Core) -> None:
        """From now on there is a core."""
        self._core = core
        self._ready.set()

    def become_unusable(self, problem: ModeldError) -> None:
        """Go on without a core; each request says why."""
        self._problem = problem
        self._ready.set()

    async def core(self) -> Core:
        """Everything behind the face; waits for the first moments of the process. Raises why there is none."""
        await self._ready.wait()
        if self._core is None:
            raise self._problem
        return self._core

    @property
    def core_now(self) -> Core | None:
        """The core if it is there already."""
        return self._core

    # --- long work -----------------------------------------------------------------------------

    async def carry(self, work: Work, run: Callable[[], Awaitable[R]]) -> R:
        """Run `run` as a task of the window and give its result.

        When the editor cancels the request, the answer goes at once, the work is asked to end, and what the daemon
        says of its end is still heard.
        """
        assert self.group is not None
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.works.add(work)

        async def task() -> None:
            try:
                result = await run()
            except Exception as error:
                if not outcome.done():
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(result)
            finally:
                self.works.discard(work)
                self.loaded(work)
                if not outcome.done():
                    outcome.cancel()

        self.group.start_soon(self._bounded, work, task)
        try:
            return await outcome
        except asyncio.CancelledError:
            work.answered = True
            work.cancel.request()
            raise

    @staticmethod
    async def _bounded(work: Work, task: Callable[[], Awaitable[None]]) -> None:
        """Work that was cancelled and does not come to its end is given up."""
        with anyio.CancelScope() as scope:

            def limit() -> None:
                scope.deadline = anyio.current_time() + AFTERMATH_S

            work.cancel.on_request(limit)
            await task()

    def cancel(self, params: wire.CancelParams) -> int:
        """Ask the works that are meant to end; how many."""
        if params.token is not None:
            meant = [work for work in self.works if params.token in work.tokens]
        else:
            meant = [work for work in self.works if params.model in ("", work.model)]
        for work in meant:
            work.cancel.request()
        return len(meant)

    @property
    def busy(self) -> bool:
        """This window waits for a model."""
        return bool(self.works)

    def loading(self, work: Work, event: api.Loading) -> None:
        """How far a load of this window is: its own events say it step by step, the status only now and then."""
        work.loads = wire.Progress(
            operation="switch" if event.unloads else "load",
            model=event.model,
            text=loading_title(event.model, event.fraction, event.unloads),
            mine=True,
            fraction=event.fraction,
        )
        self.tell("modeld/progress", work.loads, latest="progress")

    def loaded(self, work: Work) -> None:
        """Whatever became of its load, it no longer goes on. Safe to call for any work."""
        loads, work.loads = work.loads, None
        if loads is not None:
            self.tell("modeld/progress", msgspec.structs.replace(loads, text="", fraction=None, done=True))

    def answered(self, result: api.TurnResult) -> None:
        """What is learned from a turn that ended."""
        if result.usage.generated and result.timings.tokens_per_s:
            self.speeds[result.model] = result.timings.tokens_per_s
        self.last_model = result.model
        self.changed()

    # --- what is remembered --------------------------------------------------------------------

    def folder(self, workspace: str) -> str:
        """The workspace that picks are remembered for."""
        return workspace or self.workspace or "no workspace"

    async def picked(self, workspace: str = "") -> str:
        """The remembered pick, "" when there is none or it cannot be read."""
        core = await self.core()
        try:
            return await core.store.remembered(self.folder(workspace))
        except ModeldError:
            return ""  # the failure is reported when something has to be saved

    async def model_of(self, pick: str) -> str:
        """What answers where no model is named, with this pick ("": nothing)."""
        found = current_model(pick, (await self.core()).models.default)
        return "" if found == NOTHING else found

    # --- the editor ----------------------------------------------------------------------------

    def stream(self, token: wire.Token, event: wire.TurnEvent) -> None:
        """Send one partial result."""
        self.connection.tell("$/progress", {"token": token, "value": event})

    def tell(self, method: str, params: wire.Outgoing, latest: str | None = None) -> None:
        """A notification of ours."""
        self.connection.tell(method, params, latest)

    async def consent(self, question: Question, token: wire.Token | None) -> str | None:
        """Ask for consent; None when the user dismissed it. An answer for the session is kept for the window.

        Raises CannotAsk.
        """
        answer = await self._ask(question, token)
        if answer == SWITCH_ALWAYS:
            self.always_switch = True
        return answer

    async def _ask(self, question: Question, token: wire.Token | None) -> str | None:
        asked = wire.Question(
            title=question.title,
            active=question.active,
            wanted=question.wanted,
            in_use_by=question.in_use_by,
            answers=[
                wire.Answer(id=answer.id, name=answer.name, kind=_kind(answer.kind)) for answer in question.answers
            ],
            token=token,
        )
        try:
            raw = await self.connection.ask("modeld/ask", asked)
            return msgspec.convert(raw, wire.Reply).answer
        except MethodNotFound as error:
            raise CannotAsk(CANNOT_ASK) from error
        except (ModeldError, msgspec.ValidationError) as error:
            raise CannotAsk(NOT_UNDERSTOOD) from error


def _nothing() -> None:
    """Nobody listens yet."""


def _kind(kind: str) -> wire.AnswerKind:
    kinds: dict[str, wire.AnswerKind] = {"allow_once": "allow_once", "allow_always": "allow_always"}
    return kinds.get(kind, "reject_once")
