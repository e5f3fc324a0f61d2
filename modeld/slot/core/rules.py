"""What each event does in each state, as small functions (see `modeld.slot.core.machine` for the table). Pure.

A handler raises a typed error of `shared.errors` to refuse; then nothing has changed. It answers the next
state and the effects otherwise. A late event of an older worker, load or lease changes nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from modeld.pipe.exits import template_failed
from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core.state import IllegalEvent, LoadJob, Name, Operation, SlotState
from shared.catalog.identity import covers, serves
from shared.errors import (
    DaemonRestarting,
    EngineFailed,
    ModelBusy,
    ModeldError,
    ModelLoadFailed,
    ModelNotActive,
    ModelSwitchRequired,
    NotOwner,
)
from shared.settings import Settings

Step = tuple[SlotState, list[fx.Effect]]


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
    return [fx.SaveGeneration(generation=state.generation), fx.Announce()]


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
    generation = state.generation + (1 if raise_generation else 0)
    none_left = {"active": None, "load": None, "operation": None, "worker": None, "orphaned_at": None}
    after = _with(state, name="Unloading", generation=generation, closing=closing, error=error, **none_left)
    if not closing:
        after = _with(after, name="Failed" if error is not None else "Empty")
    return after, [*close, *(_raised(after) if raise_generation else [fx.Announce()])]


def _end_load(state: SlotState, error: dict[str, Any], *, failed: bool) -> Step:
    job = state.load
    assert job is not None
    after, effects = _empty_out(state, kill=True, error=error if failed else None, raise_generation=False)
    return after, [fx.FinishLoad(job=job.number, error=error), *effects]


def _crashed(state: SlotState, event: ev.WorkerGone) -> Step:
    generation = state.generation + 1
    crash = EngineFailed(reason=event.reason, generation=generation)
    error = (template_failed() if event.by_template else crash).to_wire()
    none_left = {"active": None, "operation": None, "worker": None, "orphaned_at": None}
    after = _with(state, name="Failed", generation=generation, error=error, **none_left)
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


def load_into_empty(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    """Begin the load at once: nothing is resident."""
    return _begin_load(state, event, "Loading", "")


def load_over_closing(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    """A worker is ending: the next one imports meanwhile and gets its load when that is gone."""
    return _begin_load(state, event, "Switching", "")


def load_over_ready(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    """The same identity is a no-op; another needs the caller's word. Raises ModelSwitchRequired."""
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


def load_over_busy(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    """Accept the resident model alone while it is busy. Raises ModelBusy."""
    assert state.active is not None
    if serves(state.active, event.target):
        return state, []
    raise _busy(state, now)


def load_beside_load(state: SlotState, event: ev.LoadAsked, now: float, settings: Settings) -> Step:
    """Join the load that runs, replace one that nobody waits for. Raises ModelBusy."""
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


def caller_gone(state: SlotState, event: ev.CallerGone, now: float, settings: Settings) -> Step:
    """Drop one caller; without any, the time of the roll-back begins."""
    job = state.load
    assert job is not None
    if event.caller not in job.callers:
        return state, []
    left = job.callers - {event.caller}
    orphaned = job.orphaned_at if left else now
    return _with(state, load=msgspec.structs.replace(job, callers=left, orphaned_at=orphaned)), []


def abandoned(state: SlotState, event: ev.LoadAbandoned, now: float, settings: Settings) -> Step:
    """The load ends for everybody, and the slot is empty."""
    if state.load is None or state.load.number != event.job:
        return state, []
    return _end_load(state, event.error, failed=False)


def worker_up(state: SlotState, event: ev.WorkerUp, now: float, settings: Settings) -> Step:
    """Note that the worker has imported its library."""
    if event.worker != state.worker or state.load is None:
        return state, []
    return _advance(_with(state, load=msgspec.structs.replace(state.load, up=True)))


def memory_checked(state: SlotState, event: ev.MemoryChecked, now: float, settings: Settings) -> Step:
    """Let the worker load: there is room."""
    job = state.load
    if job is None or job.number != event.job or state.worker is None or job.sent:
        return state, []
    after = _with(state, load=msgspec.structs.replace(job, sent=True))
    return after, [fx.SendLoad(worker=state.worker, job=job.number)]


def load_refused(state: SlotState, event: ev.LoadRefused, now: float, settings: Settings) -> Step:
    """The load failed: Failed, never the old model."""
    if state.load is None or state.load.number != event.job:
        return state, []
    return _end_load(state, event.error, failed=True)


def load_done(state: SlotState, event: ev.LoadDone, now: float, settings: Settings) -> Step:
    """Resident, with the values really used."""
    job = state.load
    if job is None or job.number != event.job:
        return state, []
    after = _with(state, name="Ready", active=event.identity, load=None, used_at=now, orphaned_at=job.orphaned_at)
    return after, [fx.FinishLoad(job=job.number, identity=event.identity), fx.Announce()]


def tick_load(state: SlotState, event: ev.Ticked, now: float, settings: Settings) -> Step:
    """Roll back what nobody waits for any more."""
    job = state.load
    assert job is not None
    if job.orphaned_at is None or now < job.orphaned_at + settings.load_rollback:
        return state, []
    reason = ModelLoadFailed(model=job.target.name, stage="worker", reason="nobody waited for it any more")
    return _end_load(state, reason.to_wire(), failed=False)


# --- operations --------------------------------------------------------------------------------


def operation_started(state: SlotState, event: ev.OperationStarted, now: float, settings: Settings) -> Step:
    """A protected operation takes the slot."""
    operation = Operation(lease=event.lease, kind=event.operation, holder=event.holder, since=now)
    return _with(state, name="Busy", operation=operation, orphaned_at=None), [fx.Announce()]


def refuse_busy(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    """Raises ModelBusy."""
    raise _busy(state, now)


def operation_ended(state: SlotState, event: ev.OperationEnded, now: float, settings: Settings) -> Step:
    """Back to Ready with the same generation, or closed when the state cannot be proven good."""
    if state.operation is None or state.operation.lease != event.lease:
        return state, []
    if not event.state_valid:
        return _empty_out(state, kill=True, error=None, raise_generation=True)
    used = now if event.counts_as_use else state.used_at
    return _with(state, name="Ready", operation=None, used_at=used), [fx.Announce()]


def operation_stuck(state: SlotState, event: ev.OperationStuck, now: float, settings: Settings) -> Step:
    """Kill the worker of a stuck operation, and empty the slot."""
    if state.operation is None or state.operation.lease != event.lease:
        return state, []
    after, effects = _empty_out(state, kill=True, error=None, raise_generation=True)
    error = EngineFailed(reason=event.reason, generation=after.generation).to_wire()
    return after, [fx.FailOperation(lease=event.lease, error=error), *effects]


# --- unload, workers, time ---------------------------------------------------------------------


def unload(state: SlotState, event: ev.UnloadAsked, now: float, settings: Settings) -> Step:
    """Close politely."""
    return _empty_out(state, kill=False, error=None, raise_generation=True)


def forget_failure(state: SlotState, event: ev.UnloadAsked, now: float, settings: Settings) -> Step:
    """Unloading nothing clears the failure."""
    return _with(state, name="Empty", error=None), [fx.Announce()]


def unload_load(state: SlotState, event: ev.UnloadAsked, now: float, settings: Settings) -> Step:
    """End a load that nobody waits for. Raises ModelBusy."""
    job = state.load
    assert job is not None
    if job.callers:
        raise _busy(state, now)
    return _end_load(
        state, ModelLoadFailed(model=job.target.name, stage="worker", reason=event.reason).to_wire(), failed=False
    )


def gone_in_load(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    """An old worker's end makes room; the new one's end is a failed load."""
    job = state.load
    assert job is not None
    if event.worker in state.closing:
        return _advance(_with(state, closing=state.closing - {event.worker}))
    if event.worker != state.worker:
        return state, []
    stage = "template" if event.by_template else "worker"
    error = ModelLoadFailed(model=job.target.name, stage=stage, reason=event.reason).to_wire()
    return _end_load(_with(state, worker=None), error, failed=True)


def gone_in_use(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    """The resident worker crashed."""
    return _crashed(state, event) if event.worker == state.worker else (state, [])


def gone_in_unload(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    """With the last one gone the slot is empty, or failed for the reason that closed it."""
    closing = state.closing - {event.worker}
    if closing:
        return _with(state, closing=closing), []
    return _with(state, name="Empty" if state.error is None else "Failed", closing=closing), [fx.Announce()]


def gone_in_end(state: SlotState, event: ev.WorkerGone, now: float, settings: Settings) -> Step:
    """Note that one more process has gone."""
    return _with(state, closing=state.closing - {event.worker}), []


def tick_ready(state: SlotState, event: ev.Ticked, now: float, settings: Settings) -> Step:
    """Reap an idle model, or one whose load nobody waited for."""
    when = due(state, settings, event.idle_ttl)
    if when is None or now < when:
        return state, []
    return _empty_out(state, kill=False, error=None, raise_generation=True)


# --- owner -------------------------------------------------------------------------------------


def owner_lost(state: SlotState, event: ev.OwnerLost, now: float, settings: Settings) -> Step:
    """Kill whatever runs: another instance may own."""
    return _stop_everything(state, "LostOwner", NotOwner(owner=None), kill=True)


def shutdown(state: SlotState, event: ev.ShutdownAsked, now: float, settings: Settings) -> Step:
    """Close everything in order."""
    return _stop_everything(state, "ShuttingDown", DaemonRestarting(hint="", retryable=True), kill=False)


def device_lost(state: SlotState, event: ev.DeviceLost, now: float, settings: Settings) -> Step:
    """The model goes at once, and with it the operation, for the reason that names the holder."""
    after, effects = _empty_out(state, kill=True, error=event.error, raise_generation=True)
    if state.operation is not None:
        effects = [fx.FailOperation(lease=state.operation.lease, error=event.error), *effects]
    return after, effects


def device_lost_in_load(state: SlotState, event: ev.DeviceLost, now: float, settings: Settings) -> Step:
    """The load has failed. One that holds nothing yet meets the refusal by itself."""
    return _end_load(state, event.error, failed=True)


def owner_renewed(state: SlotState, event: ev.OwnerRenewed, now: float, settings: Settings) -> Step:
    """Begin again under a new instance, above every generation so far."""
    if state.closing:
        raise IllegalEvent(state, event, [])
    return _with(state, name="Empty", generation=max(state.generation, event.floor)), [fx.Announce()]


def floor(state: SlotState, event: ev.GenerationFloor, now: float, settings: Settings) -> Step:
    """Continue above what earlier owners used."""
    return _with(state, generation=max(state.generation, event.floor)), []


def refuse_not_owner(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    """Raises NotOwner."""
    raise NotOwner(owner=None)


def refuse_ending(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    """Raises DaemonRestarting."""
    raise DaemonRestarting(hint="it is shutting down", retryable=True)


def refuse_inactive(state: SlotState, event: ev.Event, now: float, settings: Settings) -> Step:
    """Raises ModelNotActive."""
    raise ModelNotActive(requested="the model")
