"""The one loop of the slot: it owns the machine's state, and the parts change it only through what stands here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.abc

from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core.machine import Machine, due
from shared.diagnosis.defect import where
from shared.errors import ModeldError, ModelLoadFailed

if TYPE_CHECKING:
    from modeld.slot.core.state import SlotState
    from modeld.turn.queue import Resident
    from shared.clock import Clock
    from shared.protocol.api import TurnResult
    from shared.settings import Settings


class Loop(Protocol):
    """The slot as its parts use it: what is known, and the ways to change it. All on one event loop, without locks."""

    frozen: bool

    @property
    def state(self) -> SlotState:
        """What the machine knows now. Whatever depends on it and changes something goes through `feed`."""
        ...

    @property
    def resident(self) -> Resident | None:
        """What is resident, or on its way."""
        ...

    @property
    def resident_since(self) -> float:
        """When the resident model became ready, in awake seconds."""
        ...

    def now(self) -> float:
        """Awake seconds."""
        ...

    def feed(self, event: ev.Event) -> None:
        """Let something happen to the slot. Raises the machine's typed refusals."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], *, job: int | None = None) -> None:
        """Run in a task of the slot. A defect in it is logged; if it served load `job`, that load fails."""
        ...

    def wake(self) -> None:
        """Something changed beside the machine: grant what can be granted, and let whoever waits look again."""
        ...

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on the slot holds."""
        ...

    def log(self, line: str) -> None:
        """Write one line for people to the log."""
        ...


class Notes:
    """What the status tells of the slot besides its state."""

    def __init__(self) -> None:
        self.last_turn: TurnResult | None = None
        self.last_error: dict[str, Any] | None = None
        self.pending_reload = False
        self.pressure = False

    def forget_model(self) -> None:
        """The resident model has gone."""
        self.pending_reload = self.pressure = False


class Reactions(Protocol):
    """What the loop asks of the parts of the slot."""

    def carry_out(self, effect: fx.Effect) -> None:
        """Do what the machine decided."""
        ...

    def emptied(self) -> None:
        """The resident model has gone."""
        ...

    def grant(self) -> None:
        """Grant what can be granted now."""
        ...

    def idle_ttl(self) -> float | None:
        """Seconds after which an idle model is unloaded; None while it is wanted."""
        ...

    def next_moment(self) -> float | None:
        """When time alone changes what can be granted, in awake seconds."""
        ...


class SlotLoop:
    """Feeds events to the machine, hands its effects on, and keeps the one timer. Implements `Loop`."""

    def __init__(
        self, settings: Settings, clock: Clock, reactions: Reactions, notes: Notes, log: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._reactions = reactions
        self._notes = notes
        self._log = log
        self._machine = Machine(settings)
        self.frozen = False
        self.resident_since = 0.0
        self._tasks: anyio.abc.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduling = False
        self._changed = anyio.Event()

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """From now on work can be spawned."""
        self._tasks = tasks

    def stop(self) -> None:
        """End what runs, and the timer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    @property
    def state(self) -> SlotState:
        """What the machine knows now."""
        return self._machine.state

    @property
    def resident(self) -> Resident | None:
        """What is resident, or on its way."""
        state = self.state
        return state.active or (state.load.target if state.load is not None else None)

    def now(self) -> float:
        """Awake seconds."""
        return self._clock.awake()

    def log(self, line: str) -> None:
        """Write one line for people to the log."""
        self._log(line)

    # --- events and effects --------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Let something happen to the slot. Raises the machine's typed refusals."""
        before = self.state
        effects = self._machine.feed(event, self.now())
        after = self.state
        if after.active is not None and before.active is None:
            self.resident_since = self.now()
        if after.active is None and before.active is not None:
            self._reactions.emptied()
        if after is not before and after.error is not None:
            self._notes.last_error = after.error  # what an effect knows better goes over it
        for effect in effects:
            self._reactions.carry_out(effect)
        if after is not before:
            self.wake()

    def spawn(self, work: Coroutine[Any, Any, None], *, job: int | None = None) -> None:
        """Run in a task of the slot. A defect in it is logged; if it served load `job`, that load fails."""
        assert self._tasks is not None, "the slot does not run"

        async def run() -> None:
            try:
                await work
            except Exception as error:  # one defect must not take the daemon with it
                self.log(f"defect: {type(error).__name__} at {where(error)}")
                if job is not None:
                    reason = error.message if isinstance(error, ModeldError) else type(error).__name__
                    failed = ModelLoadFailed(model="the model", stage="worker", reason=reason)
                    self.feed(ev.LoadRefused(job=job, error=failed.to_wire()))

        self._tasks.start_soon(run)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on the slot holds."""
        while not holds():
            await self._changed.wait()

    def wake(self) -> None:
        """Grant what can be granted, and let whoever waits look again."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        if self._scheduling or self._tasks is None:
            return
        self._scheduling = True
        try:
            self._reactions.grant()
            self._arm()
        finally:
            self._scheduling = False

    # --- time ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer for everything that only time changes."""
        moments = [due(self.state, self._settings, self._reactions.idle_ttl()), self._reactions.next_moment()]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moment = min((one for one in moments if one is not None), default=None)
        if moment is not None:
            delay = max(moment - self.now(), 0.0) + 0.001
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        before = self.state
        if not self.frozen:
            self.feed(ev.Ticked(idle_ttl=self._reactions.idle_ttl()))
        if before.name == "Ready" and self.state.name == "Unloading":
            self.log(f"unloaded {before.active.name if before.active else ''}: idle")
        self.wake()
