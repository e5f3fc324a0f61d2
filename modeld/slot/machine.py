"""The slot's rules: one pure transition, its table, and a recorder of what happened.

What the table cannot say is said by the handlers: whether an event belongs to the worker, load or
lease in force (a late one of an older changes nothing), and whether a request is refused by a typed
error. A pair of state and event that is neither in TABLE nor in IGNORED is a defect of the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from modeld.slot import effects as fx
from modeld.slot import events as ev
from modeld.slot.state import LoadJob, Name, Operation, SlotState, covers
from shared.catalog.identity import RequestedIdentity, serves
from shared.errors import (
    DaemonRestarting,
    EngineFailed,
    ModelBusy,
    ModeldError,
    ModelLoadFailed,
    ModelSwitchRequired,
    NotOwner,
)
from shared.settings import Settings

Step = tuple[SlotState, list[fx.Effect]]
Handler = Callable[[SlotState, Any, float, Settings], Step]
_STORY_LENGTH = 40


class IllegalEvent(Exception):
    """The driver fed what cannot happen in this state; `story` is how it came to that."""

    def __init__(self, state: SlotState, event: ev.Event, story: list[str]) -> None:
        lines = "".join(f"\n  {line}" for line in story)
        super().__init__(f"{type(event).__name__} in {state.name}{lines}")
        self.state = state
        self.event = event
        self.story = story


class Machine:
    """The slot's state and its story. Not an actor: it changes only in `feed`."""

    def __init__(self, settings: Settings, state: SlotState | None = None) -> None:
        self.state = state or SlotState()
        self._settings = settings
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)

    @property
    def story(self) -> list[str]:
        """The last steps, oldest first."""
        return list(self._story)

    def feed(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """Apply one event. Raises the typed refusals of `shared.errors`, and IllegalEvent; the state then stands."""
        before = self.state
        try:
            after, effects = transition(before, event, now, self._settings)
        except IllegalEvent as error:
            raise IllegalEvent(before, event, self.story) from error
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


def due(state: SlotState, settings: Settings, idle_ttl: float | None) -> float | None:
    """When `Ticked` would next change something, in awake seconds; None: not before another event."""
    if state.load is not None and state.load.orphaned_at is not None:
        return state.load.orphaned_at + settings.load_rollback
    if state.name != "Ready":
        return None
    moments = []
    if state.orphaned_at is not None:
        moments.append(state.orphaned_at + settings.load_rollback)
    if idle_ttl is not None:
        moments.append(state.used_at + idle_ttl)
    return min(moments, default=None)


# --- building blocks ---------------------------------------------------------------------------


def _with(state: SlotState, **changes: Any) -> SlotState:
    return msgspec.structs.replace(state, **changes)


def _raised(state: SlotState) -> list[fx.Effect]:
    return [fx.DropHandles(generation=state.generation), fx.SaveGeneration(generation=state.generation), fx.Announce()]


def _begin_load(state: SlotState, event: ev.LoadAsked, name: Name, unloads: str) -> Step:
    """A new worker imports at once; the load is sent when nothing else lives (see `_advance`)."""
    job = LoadJob(number=state.next_job, target=event.target, callers=frozenset({event.caller}), unloads=unloads)
    after = _with(
        state,
        name=name,
        generation=state.generation + 1,
        active=None,
        load=job,
        worker=state.next_worker,
        error=None,
        orphaned_at=None,
        next_worker=state.next_worker + 1,
        next_job=state.next_job + 1,
    )
    return after, [fx.StartWorker(worker=state.next_worker), *_raised(after)]


def _advance(state: SlotState) -> Step:
    """The load goes on when its worker is up and every older one is gone."""
    job = state.load
    assert job is not None
    if state.closing:
        return state, []
    effects: list[fx.Effect] = [fx.Announce()] if state.name == "Switching" else []
    after = _with(state, name="Loading")
    return after, [*effects, fx.CheckMemory(job=job.number)] if job.up else effects


def _empty_out(state: SlotState, *, kill: bool, error: dict[str, Any] | None, raise_generation: bool) -> Step:
    """To Unloading: whatever lives is closed; Empty or Failed follows when it is gone."""
    closing = state.closing | ({state.worker} if state.worker is not None else frozenset())
    close: list[fx.Effect] = [] if state.worker is None else [fx.CloseWorker(worker=state.worker, kill=kill)]
    after = _with(
        state,
        name="Unloading",
        generation=state.generation + (1 if raise_generation else 0),
        active=None,
        load=None,
        operation=None,
        worker=None,
        closing=closing,
        error=error,
        orphaned_at=None,
    )
    if not closing:
        after = _with(after, name="Failed" if error is not None else "Empty")
    return after, [*close, *_raised(after)]


def _end_load(state: SlotState, error: dict[str, Any], *, failed: bool) -> Step:
    job = state.load
    assert job is not None
    after, effects = _empty_out(state, kill=True, error=error if failed else None, raise_generation=False)
    return after, [fx.FinishLoad(job=job.number, error=error), *effects]


def _crashed(state: SlotState, reason: str) -> Step:
    after = _with(
        state,
        name="Failed",
        generation=state.generation + 1,
        active=None,
        operation=None,
        worker=None,
        error=None,
        orphaned_at=None,
    )
    error = EngineFailed(reason=reason, generation=after.generation).to_wire()
    after = _with(after, error=error)
    failed: list[fx.Effect] = []
    if state.operation is not None:
        failed.append(fx.FailOperation(lease=state.operation.lease, error=error))
    return after, [*failed, *_raised(after)]


def _stop_everything(state: SlotState, name: Name, error: ModeldError, *, kill: bool) -> Step:
    effects: list[fx.Effect] = []
    wire = error.to_wire()
    if state.load is not None:
        effects.append(fx.FinishLoad(job=state.load.number, error=wire))
    if state.operation is not None:
        effects.append(fx.FailOperation(lease=state.operation.lease, error=wire))
    after, closing = _empty_out(state, kill=kill, error=None, raise_generation=True)
    return _with(after, name=name), [*effects, *closing]


# --- load --------------------------------------------------------------------------------------


def _load_into_empty(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    return _begin_load(state, event, "Loading", "")


def _load_over_closing(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    return _begin_load(state, event, "Switching", "")


def _load_over_ready(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    active, worker = state.active, state.worker
    assert active is not None
    assert worker is not None
    if serves(active, event.target):
        return _with(state, orphaned_at=None, used_at=now), []
    if not event.allow_switch:
        raise ModelSwitchRequired(active=active.name, requested=event.target.name, in_use_by=[])
    begun, effects = _begin_load(state, event, "Switching", active.name)
    after = _with(begun, closing=state.closing | {worker})
    return after, [fx.CloseWorker(worker=worker, kill=False), *effects]


def _load_over_busy(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    assert state.active is not None
    if serves(state.active, event.target):
        return state, []
    raise _busy(state, now)


def _load_beside_load(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    job = state.load
    assert job is not None
    if covers(job.target, event.target):
        joined = msgspec.structs.replace(job, callers=job.callers | {event.caller}, orphaned_at=None)
        return _with(state, load=joined), []
    if job.callers:
        raise _busy(state, now)
    # Nobody waits for it any more, and somebody wants another: rolled back at once.
    ended, effects = _end_load(
        state,
        ModelLoadFailed(model=job.target.name, stage="worker", reason="nobody waited for it any more").to_wire(),
        failed=False,
    )
    begun, more = _begin_load(ended, event, "Switching", "")
    return begun, [*effects, *more]


def _busy(state: SlotState, now: float) -> ModelBusy:
    if state.operation is not None:
        held = state.operation
        return ModelBusy(operation=held.kind, holder=held.holder, since=now - held.since, queued=0)
    return ModelBusy(operation="load", holder=state.load.target.name if state.load else "", since=0.0, queued=0)


def _caller_gone(state: SlotState, event: ev.CallerGone, now: float, settings: Settings) -> Step:
    job = state.load
    assert job is not None
    if event.caller not in job.callers:
        return state, []
    left = job.callers - {event.caller}
    orphaned = job.orphaned_at if left else now
    return _with(state, load=msgspec.structs.replace(job, callers=left, orphaned_at=orphaned)), []


def _abandoned(state: SlotState, event: ev.LoadAbandoned, now: float, settings: Settings) -> Step:
    if state.load is None or state.load.number != event.job:
        return state, []
    return _end_load(state, event.error, failed=False)


def _worker_up(state: SlotState, event: ev.WorkerUp, now: float, settings: Settings) -> Step:
    if event.worker != state.worker or state.load is None:
        return state, []
    return _advance(_with(state, load=msgspec.structs.replace(state.load, up=True)))


def _memory_checked(state: SlotState, event: ev.MemoryChecked, now: float, settings: Settings) -> Step:
    job = state.load
    if job is None or job.number != event.job or state.worker is None or job.sent:
        return state, []
    after = _with(state, load=msgspec.structs.replace(job, sent=True))
    return after, [fx.SendLoad(worker=state.worker, job=job.number)]


def _load_refused(state: SlotState, event: ev.LoadRefused, now: float, settings: Settings) -> Step:
    if state.load is None or state.load.number != event.job:
        return state, []
    return _end_load(state, event.error, failed=True)


def _load_done(state: SlotState, event: ev.LoadDone, now: float, settings: Settings) -> Step:
    job = state.load
    if job is None or job.number != event.job:
        return state, []
    after = _with(state, name="Ready", active=event.identity, load=None, used_at=now, orphaned_at=job.orphaned_at)
    return after, [fx.FinishLoad(job=job.number, identity=event.identity), fx.Announce()]


def _tick_load(state: SlotState, event: ev.Ticked, now: float, settings: Settings) -> Step:
    job = state.load
    assert job is not None
    if job.orphaned_at is None or now < job.orphaned_at + settings.load_rollback:
        return state, []
    reason = ModelLoadFailed(model=job.target.name, stage="worker", reason="nobody waited for it any more")
    return _end_load(state, reason.to_wire(), failed=False)


# --- operations --------------------------------------------------------------------------------


def _operation_started(state: SlotState, event: ev.OperationStarted, now: float, settings: Settings) -> Step:
    operation = Operation(lease=event.lease, kind=event.operation, holder=event.holder, since=now)
    return _with(state, name="Busy", operation=operation, orphaned_at=None), [fx.Announce()]


def _refuse_busy(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    raise _busy(state, now)


def _operation_ended(state: SlotState, event: ev.OperationEnded, now: float, settings: Settings) -> Step:
    if state.operation is None or state.operation.lease != event.lease:
        return state, []
    if not event.state_valid:
        return _empty_out(state, kill=True, error=None, raise_generation=True)
    used = now if event.counts_as_use else state.used_at
    return _with(state, name="Ready", operation=None, used_at=used), [fx.Announce()]


def _operation_stuck(state: SlotState, event: ev.OperationStuck, now: float, settings: Settings) -> Step:
    if state.operation is None or state.operation.lease != event.lease:
        return state, []
    after, effects = _empty_out(state, kill=True, error=None, raise_generation=True)
    error = EngineFailed(reason=event.reason, generation=after.generation).to_wire()
    return after, [fx.FailOperation(lease=event.lease, error=error), *effects]


# --- unload, workers, time ---------------------------------------------------------------------


def _unload(state: SlotState, event: ev.UnloadAsked, now: float, settings: Settings) -> Step:
    return _empty_out(state, kill=False, error=None, raise_generation=True)


def _forget_failure(state: SlotState, event: ev.UnloadAsked, now: float, settings: Settings) -> Step:
    return _with(state, name="Empty", error=None), [fx.Announce()]


def _unload_load(state: SlotState, event: ev.UnloadAsked, now: float, settings: Settings) -> Step:
    job = state.load
    assert job is not None
    if job.callers:
        raise _busy(state, now)
    return _end_load(
        state, ModelLoadFailed(model=job.target.name, stage="worker", reason=event.reason).to_wire(), failed=False
    )


def _gone_in_load(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    job = state.load
    assert job is not None
    if event.worker in state.closing:
        return _advance(_with(state, closing=state.closing - {event.worker}))
    if event.worker != state.worker:
        return state, []
    error = ModelLoadFailed(model=job.target.name, stage="worker", reason=event.reason).to_wire()
    return _end_load(_with(state, worker=None), error, failed=True)


def _gone_in_use(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    return _crashed(state, event.reason) if event.worker == state.worker else (state, [])


def _gone_in_unload(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    closing = state.closing - {event.worker}
    if closing:
        return _with(state, closing=closing), []
    return _with(state, name="Empty" if state.error is None else "Failed", closing=closing), [fx.Announce()]


def _gone_in_end(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    return _with(state, closing=state.closing - {event.worker}), []


def _tick_ready(state: SlotState, event: ev.Ticked, now: float, settings: Settings) -> Step:
    when = due(state, settings, event.idle_ttl)
    if when is None or now < when:
        return state, []
    return _empty_out(state, kill=False, error=None, raise_generation=True)


# --- owner -------------------------------------------------------------------------------------


def _owner_lost(state: SlotState, event: ev.OwnerLost, now: float, settings: Settings) -> Step:
    return _stop_everything(state, "LostOwner", NotOwner(owner=None), kill=True)


def _shutdown(state: SlotState, event: ev.ShutdownAsked, now: float, settings: Settings) -> Step:
    return _stop_everything(state, "ShuttingDown", DaemonRestarting(hint="", retryable=True), kill=False)


def _owner_renewed(state: SlotState, event: ev.OwnerRenewed, now: float, settings: Settings) -> Step:
    if state.closing:
        raise IllegalEvent(state, event, [])
    return _with(state, name="Empty", generation=max(state.generation, event.floor)), [fx.Announce()]


def _floor(state: SlotState, event: ev.GenerationFloor, now: float, settings: Settings) -> Step:
    return _with(state, generation=max(state.generation, event.floor)), []


def _refuse_not_owner(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    raise NotOwner(owner=None)


def _refuse_ending(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    raise DaemonRestarting(hint="it is shutting down", retryable=True)


def _refuse_inactive(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    from shared.errors import ModelNotActive

    raise ModelNotActive(requested="the model")


_LOADING: dict[type[ev.Event], Handler] = {
    ev.LoadAsked: _load_beside_load,
    ev.CallerGone: _caller_gone,
    ev.LoadAbandoned: _abandoned,
    ev.UnloadAsked: _unload_load,
    ev.WorkerUp: _worker_up,
    ev.WorkerGone: _gone_in_load,
    ev.LoadRefused: _load_refused,
    ev.OperationStarted: _refuse_busy,
    ev.Ticked: _tick_load,
}
_BY_STATE: dict[Name, dict[type[ev.Event], Handler]] = {
    "Empty": {
        ev.LoadAsked: _load_into_empty,
        ev.OperationStarted: _refuse_inactive,
        ev.GenerationFloor: _floor,
    },
    "Failed": {
        ev.LoadAsked: _load_into_empty,
        ev.UnloadAsked: _forget_failure,
        ev.OperationStarted: _refuse_inactive,
        ev.GenerationFloor: _floor,
    },
    "Loading": {**_LOADING, ev.MemoryChecked: _memory_checked, ev.LoadDone: _load_done},
    "Switching": _LOADING,
    "Ready": {
        ev.LoadAsked: _load_over_ready,
        ev.UnloadAsked: _unload,
        ev.WorkerGone: _gone_in_use,
        ev.OperationStarted: _operation_started,
        ev.Ticked: _tick_ready,
    },
    "Busy": {
        ev.LoadAsked: _load_over_busy,
        ev.UnloadAsked: _refuse_busy,
        ev.WorkerGone: _gone_in_use,
        ev.OperationStarted: _refuse_busy,
        ev.OperationEnded: _operation_ended,
        ev.OperationStuck: _operation_stuck,
    },
    "Unloading": {
        ev.LoadAsked: _load_over_closing,
        ev.WorkerGone: _gone_in_unload,
        ev.OperationStarted: _refuse_inactive,
    },
    "LostOwner": {
        ev.LoadAsked: _refuse_not_owner,
        ev.UnloadAsked: _refuse_not_owner,
        ev.OperationStarted: _refuse_not_owner,
        ev.WorkerGone: _gone_in_end,
        ev.OwnerRenewed: _owner_renewed,
    },
    "ShuttingDown": {
        ev.LoadAsked: _refuse_ending,
        ev.OperationStarted: _refuse_ending,
        ev.WorkerGone: _gone_in_end,
    },
}
#: Any state may lose its owner or shut down; a process that shuts down does so whoever owns.
_EVERYWHERE: dict[type[ev.Event], Handler] = {ev.OwnerLost: _owner_lost, ev.ShutdownAsked: _shutdown}
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

#: Late answers of workers, loads and leases that are not in force any more, and wishes already met.
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


def target_of(state: SlotState) -> RequestedIdentity | None:
    """What is being loaded, if anything is."""
    return state.load.target if state.load is not None else None
