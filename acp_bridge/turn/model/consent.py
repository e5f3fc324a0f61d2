"""A turn on the local slot: waits out a restart, asks before it hurts another editor, fits what does not fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
import msgspec

from acp_bridge.cancel import Cancel, TurnCancelled
from acp_bridge.conversations.events import Card, Shown
from acp_bridge.conversations.face import CannotAsk
from acp_bridge.turn.model.switch_question import DECLINE, SWITCH_ALWAYS, WAIT, switch_question
from shared.errors import ConsentDeclined, DaemonRestarting, ModelSwitchRequired, WaitTimeout
from shared.protocol import api
from shared.text.words import users_named

if TYPE_CHECKING:
    from acp_bridge.conversations.face import Question
    from acp_bridge.daemon.client import Daemon
    from shared.clock import Clock
    from shared.settings import Settings

R = TypeVar("R")
Made_co = TypeVar("Made_co", covariant=True)
OnEvent = Callable[[api.Event], None]
#: While the user waits for another editor, the slot is tried this often (bounded by `queue_wait`).
WAIT_STEP_S = 5.0
#: Events that are part of an answer: after the first, a second try could say something else.
ANSWER = (api.TextDelta, api.ReasoningDelta, api.ToolCallDelta)


class Attempt(Protocol[Made_co]):
    """Something that may need a switch; `consent` says whether it may hurt another client."""

    def __call__(self, *, consent: bool) -> Awaitable[Made_co]:
        """Try it. Raises ModelSwitchRequired."""
        ...


class Asker(Protocol):
    """What a turn needs of its conversation to ask, and to show that it waits.

    `question_card` is the id of the card beside the switch question, "" where the face shows none.
    """

    question_card: str
    always_switch: bool
    waits: bool

    @property
    def show(self) -> Callable[[Shown], None]:
        """Shows an event of the conversation: the card beside a question."""
        ...

    async def ask(self, question: Question) -> str | None:
        """The id of the answer, None when the user cancelled."""
        ...

    def waiting(self, title: str) -> None:
        """Show what is waited for."""
        ...

    def progress(self, event: api.Event) -> None:
        """Show how far a load is."""
        ...


class LocalModel:
    """Runs turns of one local model through modeld."""

    def __init__(self, daemon: Daemon, settings: Settings, clock: Clock) -> None:
        self._daemon = daemon
        self._settings = settings
        self._clock = clock

    async def generate(self, params: api.TurnParams, on_event: OnEvent, cancel: Cancel, asker: Asker) -> api.TurnResult:
        """Run one turn. Raises the typed errors, ConsentDeclined when the user would not switch.

        One that may not load or switch asks nobody: what it would need ends it as the error that says so.
        """
        await self._daemon.wait(cancel, asker.waiting)
        if not (params.allow_load and params.allow_switch):
            return await self._through_gap(params, on_event, cancel, asker)

        async def attempt(*, consent: bool) -> api.TurnResult:
            agreed = msgspec.structs.replace(params, consent=consent)
            return await self._through_gap(agreed, on_event, cancel, asker)

        return await self._consented(attempt, params.model, cancel, asker)

    async def _through_gap(
        self, params: api.TurnParams, on_event: OnEvent, cancel: Cancel, asker: Asker
    ) -> api.TurnResult:
        """The turn; asked once more when modeld restarted before any of the answer was shown, and is back in time."""
        answered: list[bool] = []

        def seen(event: api.Event) -> None:
            if isinstance(event, ANSWER):
                answered.append(True)
            on_event(event)

        try:
            return await self._daemon.turn(params, seen, cancel)
        except DaemonRestarting:
            if answered:
                raise
        await self._daemon.wait(cancel, asker.waiting)
        return await self._daemon.turn(params, seen, cancel)

    async def load(
        self, name: str, asker: Asker, cancel: Cancel, config: api.LoadConfig | None = None
    ) -> api.LoadResult:
        """Load a model outside of a turn, asked for by the user; another one goes if need be."""
        await self._daemon.wait(cancel, asker.waiting)
        wanted = api.LoadParams(model=name, config=config or api.LoadConfig(), on_busy="wait")

        async def attempt(*, consent: bool) -> api.LoadResult:
            try:
                return await self._load(wanted, cancel, asker, switch=consent)
            except ModelSwitchRequired as error:
                users = self.others()
                if users:
                    raise ModelSwitchRequired(active=error.active, requested=name, in_use_by=users) from error
            return await self._load(wanted, cancel, asker, switch=True)

        return await self._consented(attempt, name, cancel, asker)

    async def load_alone(
        self, name: str, asker: Asker, cancel: Cancel, config: api.LoadConfig | None = None
    ) -> api.LoadResult:
        """Load into a slot that no other model holds. Raises ModelSwitchRequired else."""
        await self._daemon.wait(cancel, asker.waiting)
        wanted = api.LoadParams(model=name, config=config or api.LoadConfig(), on_busy="wait")
        try:
            return await self._load(wanted, cancel, asker, switch=False)
        except ModelSwitchRequired as error:
            raise ModelSwitchRequired(active=error.active, requested=name, in_use_by=self.others()) from error

    async def _load(self, wanted: api.LoadParams, cancel: Cancel, asker: Asker, *, switch: bool) -> api.LoadResult:
        params = msgspec.structs.replace(wanted, allow_switch=switch)
        done = await cancel.race(lambda: self._daemon.call("model/load", params, api.LoadResult, asker.progress))
        self._daemon.loaded(done.active)
        return done

    def others(self) -> list[str]:
        """The clients that use or wait for the slot now, without this one."""
        status = self._daemon.status
        if status is None:
            return []
        users = [waiting.client for waiting in status.queue]
        if status.busy is not None:
            users.insert(0, status.busy.holder)
        return [user for user in dict.fromkeys(users) if user and user != self._daemon.client_name]

    async def _consented(self, attempt: Attempt[R], wanted: str, cancel: Cancel, asker: Asker) -> R:
        """`attempt` as far as it hurts nobody, then as the user agrees."""
        began = self._clock.awake()
        consent = asker.always_switch
        while True:
            try:
                return await attempt(consent=consent)
            except ModelSwitchRequired as error:
                if consent:
                    raise
                required = error
            if not asker.waits:
                consent = await self._agree(wanted, required, cancel, asker)
            if not consent:
                await self._pause(required, began, cancel, asker)

    async def _pause(self, required: ModelSwitchRequired, began: float, cancel: Cancel, asker: Asker) -> None:
        """Between two tries while the user waits for the other editor. Raises WaitTimeout after `queue_wait`."""
        waited = self._clock.awake() - began
        if waited >= self._settings.queue_wait:
            raise WaitTimeout(position=1, waited_s=round(waited))
        users = users_named(required.in_use_by or [])
        asker.waiting(f"Waiting until {users} no longer uses {required.active}")
        await cancel.race(lambda: anyio.sleep(WAIT_STEP_S))

    async def _agree(self, wanted: str, required: ModelSwitchRequired, cancel: Cancel, asker: Asker) -> bool:
        """Ask, once a turn. False means to wait. Raises ConsentDeclined."""
        card = asker.question_card
        question = switch_question(card, str(required.active), wanted, required.in_use_by or [])
        asker.show(Card(card=card, title=question.title, status="pending"))
        try:
            answer = await cancel.race(lambda: asker.ask(question))
        except CannotAsk as error:
            asker.show(Card(card=card, title=question.title, status="failed"))
            users = users_named(required.in_use_by or [])
            raise ConsentDeclined(f"{question.title} Not done: {error}", model=wanted, in_use_by=users) from error
        except TurnCancelled:
            asker.show(Card(card=card, title=question.title, status="failed"))
            raise
        declined = answer in (None, DECLINE)
        asker.show(Card(card=card, title=question.title, status="failed" if declined else "completed"))
        if declined:
            raise ConsentDeclined(model=wanted, in_use_by=users_named(required.in_use_by or []))
        asker.waits = answer == WAIT
        asker.always_switch = answer == SWITCH_ALWAYS
        return not asker.waits
