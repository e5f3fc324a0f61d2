"""The slot's rules: one pure transition, its table, and a recorder of what happened. Pure.

What the table cannot say is said by the handlers: whether an event belongs to the worker, load or
lease in force (a late one of an older changes nothing), and whether a request is refused by a typed
error. A pair of state and event that is neither in TABLE nor in IGNORED is a defect of the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core import rules
from modeld.slot.core.rules import Step, due
from modeld.slot.core.state import IllegalEvent, Name, SlotState
from shared.settings import Settings

Handler = Callable[[SlotState, Any, float, Settings], Step]
_STORY_LENGTH = 40

__all__ = ["IGNORED", "TABLE", "IllegalEvent", "Machine", "due", "transition"]


class Machine:
    """The slot's state and its history. Not an actor: it changes only in `feed`."""

    def __init__(self, settings: Settings, state: SlotState | None = None) -> None:
        self.state = state or SlotState()
        self._settings = settings
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)

    @property
    def history(self) -> list[str]:
        """The last steps, oldest first."""
        return list(self._story)

    def feed(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """Apply one event. Raises the typed refusals of `shared.errors`, and IllegalEvent; the state then stands."""
        before = self.state
        try:
            after, effects = transition(before, event, now, self._settings)
        except IllegalEvent as error:
            raise IllegalEvent(before, event, self.history) from error
        self._story.append(f"{now:.3f} {before.name} --{type(event).__name__}--> {after.name} g{after.generation}")
        self.state = after
        return effects


def transition(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    """The next state and what to do. `now` in awake seconds."""
    pair = (state.name, type(event))
    handler = TABLE.get(pair)
    if handler is not None:
        return handler(state, event, now, settings)
    if pair in IGNORED:
        return state, []
    raise IllegalEvent(state, event, [])


_LOADING: dict[type[ev.Event], Handler] = {
    ev.LoadAsked: rules.load_beside_load,
    ev.CallerGone: rules.caller_gone,
    ev.LoadAbandoned: rules.abandoned,
    ev.UnloadAsked: rules.unload_load,
    ev.WorkerUp: rules.worker_up,
    ev.WorkerGone: rules.gone_in_load,
    ev.LoadRefused: rules.load_refused,
    ev.DeviceLost: rules.device_lost_in_load,
    ev.OperationStarted: rules.refuse_busy,
    ev.Ticked: rules.tick_load,
}
_BY_STATE: dict[Name, dict[type[ev.Event], Handler]] = {
    "Empty": {
        ev.LoadAsked: rules.load_into_empty,
        ev.OperationStarted: rules.refuse_inactive,
        ev.GenerationFloor: rules.floor,
    },
    "Failed": {
        ev.LoadAsked: rules.load_into_empty,
        ev.UnloadAsked: rules.forget_failure,
        ev.OperationStarted: rules.refuse_inactive,
        ev.GenerationFloor: rules.floor,
    },
    "Loading": {**_LOADING, ev.MemoryChecked: rules.memory_checked, ev.LoadDone: rules.load_done},
    "Switching": _LOADING,
    "Ready": {
        ev.LoadAsked: rules.load_over_ready,
        ev.UnloadAsked: rules.unload,
        ev.WorkerGone: rules.gone_in_use,
        ev.OperationStarted: rules.operation_started,
        ev.DeviceLost: rules.device_lost,
        ev.Ticked: rules.tick_ready,
    },
    "Busy": {
        ev.LoadAsked: rules.load_over_busy,
        ev.UnloadAsked: rules.refuse_busy,
        ev.WorkerGone: rules.gone_in_use,
        ev.OperationStarted: rules.refuse_busy,
        ev.OperationEnded: rules.operation_ended,
        ev.DeviceLost: rules.device_lost,
        ev.OperationStuck: rules.operation_stuck,
    },
    "Unloading": {
        ev.LoadAsked: rules.load_over_closing,
        ev.WorkerGone: rules.gone_in_unload,
        ev.OperationStarted: rules.refuse_inactive,
    },
    "LostOwner": {
        ev.LoadAsked: rules.refuse_not_owner,
        ev.UnloadAsked: rules.refuse_not_owner,
        ev.OperationStarted: rules.refuse_not_owner,
        ev.WorkerGone: rules.gone_in_end,
        ev.OwnerRenewed: rules.owner_renewed,
    },
    "ShuttingDown": {
        ev.LoadAsked: rules.refuse_ending,
        ev.OperationStarted: rules.refuse_ending,
        ev.WorkerGone: rules.gone_in_end,
    },
}
#: Any state may lose its owner or shut down; a process that shuts down does so whoever owns.
_EVERYWHERE: dict[type[ev.Event], Handler] = {ev.OwnerLost: rules.owner_lost, ev.ShutdownAsked: rules.shutdown}
_FINAL: dict[Name, frozenset[type[ev.Event]]] = {
    "LostOwner": frozenset({ev.OwnerLost}),
    "ShuttingDown": frozenset({ev.OwnerLost, ev.ShutdownAsked}),
}

TABLE: dict[tuple[Name, type[ev.Event]], Handler] = {
    **{(name, kind): handler for name, pairs in _BY_STATE.items() for kind, handler in pairs.items()},
    **{
        (name, kind): handler
        for name in _BY_STATE
        for kind, handler in _EVERYWHERE.items()
        if kind not in _FINAL.get(name, frozenset())
    },
}

#: Late answers of workers, loads and leases that are not in force any more, and requests already met.
_LATE: frozenset[type[ev.Event]] = frozenset(
    {
        ev.CallerGone,
        ev.LoadAbandoned,
        ev.WorkerUp,
        ev.WorkerGone,
        ev.MemoryChecked,
        ev.LoadRefused,
        ev.LoadDone,
        ev.OperationEnded,
        ev.OperationStuck,
        ev.Ticked,
        ev.OwnerLost,
        ev.DeviceLost,
    }
)
_MET: frozenset[tuple[Name, type[ev.Event]]] = frozenset(
    {
        ("Empty", ev.UnloadAsked),
        ("Unloading", ev.UnloadAsked),
        ("ShuttingDown", ev.UnloadAsked),
        ("ShuttingDown", ev.ShutdownAsked),
    }
)
IGNORED: frozenset[tuple[Name, type[ev.Event]]] = (
    frozenset((name, kind) for name in _BY_STATE for kind in _LATE) | _MET
) - frozenset(TABLE)
