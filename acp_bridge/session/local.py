"""A turn on the local slot: waits out a restart, asks before it hurts another editor, fits what does not fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
import msgspec

from acp_bridge.session.events import Card, Shown
from acp_bridge.session.question import DECLINE, SWITCH_ALWAYS, WAIT, switch_question
from shared.errors import ConsentDeclined, ModelSwitchRequired, WaitTimeout
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.session.cancel import Cancel
    from acp_bridge.session.face import Question
    from shared.clock import Clock
    from shared.settings import Settings

R = TypeVar("R")
OnEvent = Callable[[api.Event], None]
#: While the user waits for another editor, the slot is tried this often (bounded by `queue_wait`).
WAIT_STEP_S = 5.0


class Asker(Protocol):
    """What a turn needs of its conversation to ask, and to show that it waits."""

    always_switch: bool
    waits: bool
    show: Callable[[Shown], None]

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

    async def generate(
        self, params: api.TurnParams, on_event: OnEvent, cancel: Cancel, asker: Asker, card: str
    ) -> api.TurnResult:
        """One turn. Raises the typed errors, ConsentDeclined when the user would not switch."""
        params = msgspec.structs.replace(params, allow_load=True, on_busy="wait")
        await self._daemon.wait(cancel, asker.waiting)
        return await self._consented(
            lambda switch, consent: self._daemon.turn(
                msgspec.structs.replace(params, allow_switch=switch, consent=consent), on_event, cancel
            ),
            params.model,
            cancel,
            asker,
            card,
        )

    async def load(self, name: str, asker: Asker, cancel: Cancel, card: str) -> api.LoadResult:
        """Load a model outside of a turn, asked for by the user."""
        await self._daemon.wait(cancel, asker.waiting)

        def attempt(switch: bool, consent: bool) -> Awaitable[api.LoadResult]:
            del consent  # model/load knows only whether it may switch
            params = api.LoadParams(model=name, allow_switch=switch, on_busy="wait")
            return cancel.race(lambda: self._daemon.call("model/load", params, api.LoadResult, asker.progress))

        return await self._consented(attempt, name, cancel, asker, card)

    async def _consented(
        self,
        attempt: Callable[[bool, bool], Awaitable[R]],
        wanted: str,
        cancel: Cancel,
        asker: Asker,
        card: str,
    ) -> R:
        """`attempt(allow_switch, consent)`: first without a switch, then as the user agrees."""
        try:
            return await attempt(False, False)
        except ModelSwitchRequired as error:
            required = error
        began = self._clock.awake()
        while True:
            consent = bool(required.in_use_by) and await self._agree(wanted, required, cancel, asker, card)
            try:
                return await attempt(True, consent)
            except ModelSwitchRequired as error:
                required = error
            await self._pause(required, began, cancel, asker)

    async def _pause(self, required: ModelSwitchRequired, began: float, cancel: Cancel, asker: Asker) -> None:
        """Between two tries while the user waits for the other editor. Raises WaitTimeout after `queue_wait`."""
        waited = self._clock.awake() - began
        if waited >= self._settings.queue_wait:
            raise WaitTimeout(position=1, waited_s=round(waited))
        users = ", ".join(required.in_use_by or ["another editor"])
        asker.waiting(f"Waiting until {users} no longer uses {required.active}")
        await cancel.race(lambda: anyio.sleep(WAIT_STEP_S))

    async def _agree(self, wanted: str, required: ModelSwitchRequired, cancel: Cancel, asker: Asker, card: str) -> bool:
        """Ask once a turn, unless the user said "always". False means to wait."""
        if asker.always_switch or asker.waits:
            return asker.always_switch
        question = switch_question(card, str(required.active), wanted, required.in_use_by)
        asker.show(Card(card=card, title=question.title, status="pending"))
        answer = await cancel.race(lambda: asker.ask(question))
        declined = answer in (None, DECLINE)
        asker.show(Card(card=card, title=question.title, status="failed" if declined else "completed"))
        if declined:
            raise ConsentDeclined(model=wanted, in_use_by=", ".join(required.in_use_by))
        asker.waits = answer == WAIT
        asker.always_switch = answer == SWITCH_ALWAYS
        return not asker.waits
