"""Each rule of the slot by value: the state that follows, whole, and every effect with what it carries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modeld.pipe.exits import template_failed
from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core.machine import due, transition
from modeld.slot.core.state import LoadJob, Operation, SlotState
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
from unit_slot_identities import asked, resolved

pytestmark = pytest.mark.unit

SETTINGS = Settings()
NOW = 100.0
ERROR: dict[str, Any] = {"code": -1, "message": "no"}
JOB = LoadJob(number=3, target=asked("a"), callers=frozenset({1, 2}))
ORPHAN = LoadJob(number=3, target=asked("a"), callers=frozenset(), orphaned_at=95.0)
TURN = Operation(lease=7, kind="turn", holder="Zed", since=90.0)
NONE: dict[str, Any] = {"active": None, "load": None, "operation": None, "worker": None, "orphaned_at": None}


def state(name: Any, **fields: Any) -> SlotState:
    return SlotState(name=name, generation=4, next_worker=10, next_job=20, used_at=50.0, **fields)


EMPTY = state("Empty")
LOADING = state("Loading", load=JOB, worker=5)
SWITCHING = state("Switching", load=JOB, worker=5, closing=frozenset({4}))
READY = state("Ready", active=resolved("a"), worker=5, orphaned_at=98.0)
BUSY = state("Busy", active=resolved("a"), worker=5, operation=TURN)
UNLOADING = state("Unloading", closing=frozenset({4, 5}))
FAILED = state("Failed", error=ERROR)
ENDING = state("ShuttingDown", closing=frozenset({4, 5}))
LOST = state("LostOwner", closing=frozenset({4, 5}))


def reported(generation: int = 5) -> list[fx.Effect]:
    """What everybody hears when the generation rises."""
    return [fx.SaveGeneration(generation=generation), fx.Announce()]


def begun(name: str, target: str, unloads: str = "") -> dict[str, Any]:
    """What a load that begins changes."""
    job = LoadJob(number=20, target=asked(target), callers=frozenset({9}), unloads=unloads)
    fresh = {"name": name, "generation": 5, "load": job, "worker": 10, "next_worker": 11, "next_job": 21}
    return {**fresh, "active": None, "error": None, "orphaned_at": None}


def failed_load(stage: str, reason: str) -> dict[str, Any]:
    return ModelLoadFailed(model="a", stage=stage, reason=reason).to_wire()


def with_load(before: SlotState, **fields: Any) -> dict[str, Any]:
    return {"load": msgspec.structs.replace(before.load or JOB, **fields)}


ASK_A = ev.LoadAsked(target=asked("a"), caller=9)
ASK_B = ev.LoadAsked(target=asked("b"), caller=9)
SWITCH = ev.LoadAsked(target=asked("b"), caller=9, allow_switch=True)
NOBODY = failed_load("worker", "nobody waited for it any more")
START = fx.StartWorker(worker=10)
CRASH = EngineFailed(reason="gone", generation=5).to_wire()
UP = msgspec.structs.replace(LOADING, load=msgspec.structs.replace(JOB, up=True))
ORPHANED = msgspec.structs.replace(LOADING, load=ORPHAN)


def closed(worker: int = 5, *, kill: bool) -> fx.Effect:
    return fx.CloseWorker(worker=worker, kill=kill)


ALL_GONE = {**NONE, "name": "Unloading", "closing": frozenset({5}), "error": None}
STEPS: list[tuple[str, SlotState, ev.Event, dict[str, Any], list[fx.Effect]]] = [
    ("load into nothing", EMPTY, ASK_A, begun("Loading", "a"), [START, *reported()]),
    ("load after a failure", FAILED, ASK_A, begun("Loading", "a"), [START, *reported()]),
    ("load beside an ending", UNLOADING, ASK_A, begun("Switching", "a"), [START, *reported()]),
    ("load what is there", READY, ASK_A, {"orphaned_at": None, "used_at": NOW}, []),
    (
        "switch",
        READY,
        SWITCH,
        {**begun("Switching", "b", "a"), "closing": frozenset({5})},
        [closed(kill=False), START, *reported()],
    ),
    ("load what is busy", BUSY, ASK_A, {}, []),
    ("join a load", LOADING, ASK_A, with_load(LOADING, callers=frozenset({1, 2, 9})), []),
    ("join an orphan", ORPHANED, ASK_A, with_load(ORPHANED, callers=frozenset({9}), orphaned_at=None), []),
    (
        "load instead of an orphan",
        ORPHANED,
        ASK_B,
        {**begun("Switching", "b"), "closing": frozenset({5})},
        [fx.FinishLoad(job=3, error=NOBODY), closed(kill=True), fx.Announce(), START, *reported()],
    ),
    ("a caller goes", LOADING, ev.CallerGone(caller=1), with_load(LOADING, callers=frozenset({2})), []),
    (
        "the last caller goes",
        msgspec.structs.replace(LOADING, load=msgspec.structs.replace(JOB, callers=frozenset({1}))),
        ev.CallerGone(caller=1),
        with_load(LOADING, callers=frozenset(), orphaned_at=NOW),
        [],
    ),
    ("a stranger goes", LOADING, ev.CallerGone(caller=8), {}, []),
    (
        "abandoned",
        LOADING,
        ev.LoadAbandoned(job=3, error=ERROR),
        ALL_GONE,
        [fx.FinishLoad(job=3, error=ERROR), closed(kill=True), fx.Announce()],
    ),
    ("abandoned, late", LOADING, ev.LoadAbandoned(job=2, error=ERROR), {}, []),
    ("up", LOADING, ev.WorkerUp(worker=5), with_load(LOADING, up=True), [fx.CheckMemory(job=3)]),
    ("up beside an ending", SWITCHING, ev.WorkerUp(worker=5), with_load(SWITCHING, up=True), []),
    ("another is up", LOADING, ev.WorkerUp(worker=6), {}, []),
    ("room", UP, ev.MemoryChecked(job=3), with_load(UP, sent=True), [fx.SendLoad(worker=5, job=3)]),
    ("room, late", UP, ev.MemoryChecked(job=2), {}, []),
    ("refused", LOADING, ev.LoadRefused(job=3, error=ERROR), {**ALL_GONE, "error": ERROR},
     [fx.FinishLoad(job=3, error=ERROR), closed(kill=True), fx.Announce()]),
    ("refused, late", LOADING, ev.LoadRefused(job=2, error=ERROR), {}, []),
    (
        "done",
        LOADING,
        ev.LoadDone(job=3, identity=resolved("a")),
        {"name": "Ready", "active": resolved("a"), "load": None, "used_at": NOW, "orphaned_at": None},
        [fx.FinishLoad(job=3, identity=resolved("a")), fx.Announce()],
    ),
    (
        "done for nobody",
        ORPHANED,
        ev.LoadDone(job=3, identity=resolved("a")),
        {"name": "Ready", "active": resolved("a"), "load": None, "used_at": NOW, "orphaned_at": 95.0},
        [fx.FinishLoad(job=3, identity=resolved("a")), fx.Announce()],
    ),
    ("done, late", LOADING, ev.LoadDone(job=2, identity=resolved("a")), {}, []),
    ("time of a load", LOADING, ev.Ticked(idle_ttl=1.0), {}, []),
    ("time of an orphan", ORPHANED, ev.Ticked(idle_ttl=None), {}, []),
    ("a turn begins", READY, ev.OperationStarted(lease=8, operation="embed", holder="x"),
     {"name": "Busy", "operation": Operation(lease=8, kind="embed", holder="x", since=NOW), "orphaned_at": None},
     [fx.Announce()]),
    ("a turn ends", BUSY, ev.OperationEnded(lease=7), {"name": "Ready", "operation": None, "used_at": NOW},
     [fx.Announce()]),
    ("no use ends", BUSY, ev.OperationEnded(lease=7, counts_as_use=False), {"name": "Ready", "operation": None},
     [fx.Announce()]),
    ("a turn ends badly", BUSY, ev.OperationEnded(lease=7, state_valid=False), {**ALL_GONE, "generation": 5},
     [closed(kill=True), *reported()]),
    ("a turn ends late", BUSY, ev.OperationEnded(lease=6, state_valid=False), {}, []),
    ("stuck", BUSY, ev.OperationStuck(lease=7, reason="gone"), {**ALL_GONE, "generation": 5},
     [fx.FailOperation(lease=7, error=CRASH), closed(kill=True), *reported()]),
    ("stuck, late", BUSY, ev.OperationStuck(lease=6, reason="gone"), {}, []),
    ("unload", READY, ev.UnloadAsked(reason="asked for"), {**ALL_GONE, "generation": 5},
     [closed(kill=False), *reported()]),
    ("unload a failure", FAILED, ev.UnloadAsked(reason="asked for"), {"name": "Empty", "error": None},
     [fx.Announce()]),
    ("unload an orphan", ORPHANED, ev.UnloadAsked(reason="asked for"), ALL_GONE,
     [fx.FinishLoad(job=3, error=failed_load("worker", "asked for")), closed(kill=True), fx.Announce()]),
    ("the old one is gone", SWITCHING, ev.WorkerGone(worker=4, reason="closed"),
     {"name": "Loading", "closing": frozenset()}, [fx.Announce()]),
    ("the old one is gone, the next is up", msgspec.structs.replace(SWITCHING, load=UP.load),
     ev.WorkerGone(worker=4, reason="closed"), {"name": "Loading", "closing": frozenset()},
     [fx.Announce(), fx.CheckMemory(job=3)]),
    ("the next one is gone", LOADING, ev.WorkerGone(worker=5, reason="gone"),
     {**NONE, "name": "Failed", "error": failed_load("worker", "gone")},
     [fx.FinishLoad(job=3, error=failed_load("worker", "gone")), fx.Announce()]),
    ("the next one is gone before the old", SWITCHING, ev.WorkerGone(worker=5, reason="gone", by_template=True),
     {**NONE, "name": "Unloading", "error": failed_load("template", "gone")},
     [fx.FinishLoad(job=3, error=failed_load("template", "gone")), fx.Announce()]),
    ("another is gone in a load", LOADING, ev.WorkerGone(worker=9, reason="gone"), {}, []),
    ("crashed", READY, ev.WorkerGone(worker=5, reason="gone"),
     {**NONE, "name": "Failed", "generation": 5, "error": CRASH}, reported()),
    ("crashed in a turn", BUSY, ev.WorkerGone(worker=5, reason="gone"),
     {**NONE, "name": "Failed", "generation": 5, "error": CRASH},
     [fx.FailOperation(lease=7, error=CRASH), *reported()]),
    ("ended by a template", BUSY, ev.WorkerGone(worker=5, reason="gone", by_template=True),
     {**NONE, "name": "Failed", "generation": 5, "error": template_failed().to_wire()},
     [fx.FailOperation(lease=7, error=template_failed().to_wire()), *reported()]),
    ("another is gone in use", READY, ev.WorkerGone(worker=9, reason="gone"), {}, []),
    ("one of two is gone", UNLOADING, ev.WorkerGone(worker=4, reason="closed"), {"closing": frozenset({5})}, []),
    ("the last is gone", msgspec.structs.replace(UNLOADING, closing=frozenset({5})),
     ev.WorkerGone(worker=5, reason="closed"), {"name": "Empty", "closing": frozenset()}, [fx.Announce()]),
    ("the last is gone of a failure", msgspec.structs.replace(UNLOADING, closing=frozenset({5}), error=ERROR),
     ev.WorkerGone(worker=5, reason="closed"), {"name": "Failed", "closing": frozenset()}, [fx.Announce()]),
    ("one is gone in the end", ENDING, ev.WorkerGone(worker=4, reason="closed"), {"closing": frozenset({5})}, []),
    ("the owner is lost in a load", SWITCHING, ev.OwnerLost(),
     {**NONE, "name": "LostOwner", "generation": 5, "closing": frozenset({4, 5})},
     [fx.FinishLoad(job=3, error=NotOwner(owner=None).to_wire()), closed(kill=True), *reported()]),
    ("the owner is lost in a turn", BUSY, ev.OwnerLost(),
     {**NONE, "name": "LostOwner", "generation": 5, "closing": frozenset({5})},
     [fx.FailOperation(lease=7, error=NotOwner(owner=None).to_wire()), closed(kill=True), *reported()]),
    ("the end comes in a turn", BUSY, ev.ShutdownAsked(),
     {**NONE, "name": "ShuttingDown", "generation": 5, "closing": frozenset({5})},
     [fx.FailOperation(lease=7, error=DaemonRestarting(hint="", retryable=True).to_wire()),
      closed(kill=False), *reported()]),
    ("the end comes to nothing", FAILED, ev.ShutdownAsked(),
     {"name": "ShuttingDown", "generation": 5, "error": None}, reported()),
    ("the device goes", READY, ev.DeviceLost(error=ERROR), {**ALL_GONE, "generation": 5, "error": ERROR},
     [closed(kill=True), *reported()]),
    ("the device goes in a turn", BUSY, ev.DeviceLost(error=ERROR), {**ALL_GONE, "generation": 5, "error": ERROR},
     [fx.FailOperation(lease=7, error=ERROR), closed(kill=True), *reported()]),
    ("the device goes in a load", LOADING, ev.DeviceLost(error=ERROR), {**ALL_GONE, "error": ERROR},
     [fx.FinishLoad(job=3, error=ERROR), closed(kill=True), fx.Announce()]),
    ("owner again", msgspec.structs.replace(LOST, closing=frozenset()), ev.OwnerRenewed(floor=9),
     {"name": "Empty", "generation": 9}, [fx.Announce()]),
    ("owner again, above", msgspec.structs.replace(LOST, closing=frozenset()), ev.OwnerRenewed(floor=2),
     {"name": "Empty"}, [fx.Announce()]),
    ("a floor", EMPTY, ev.GenerationFloor(floor=9), {"generation": 9}, []),
    ("a lower floor", FAILED, ev.GenerationFloor(floor=2), {}, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "event", "changes", "effects"), [step[1:] for step in STEPS], ids=[step[0] for step in STEPS]
)
def test_what_follows_and_what_is_done(
    before: SlotState, event: ev.Event, changes: dict[str, Any], effects: list[fx.Effect]
) -> None:
    after, done = transition(before, event, NOW, SETTINGS)
    assert after == msgspec.structs.replace(before, **changes)
    assert done == effects


def test_an_orphan_is_rolled_back_at_its_time_and_not_before() -> None:
    when = 95.0 + SETTINGS.load_rollback
    assert transition(ORPHANED, ev.Ticked(idle_ttl=None), when - 0.1, SETTINGS) == (ORPHANED, [])
    after, effects = transition(ORPHANED, ev.Ticked(idle_ttl=None), when, SETTINGS)
    assert after == msgspec.structs.replace(ORPHANED, **ALL_GONE)
    assert effects == [fx.FinishLoad(job=3, error=NOBODY), closed(kill=True), fx.Announce()]


IDLE = msgspec.structs.replace(READY, orphaned_at=None)


@pytest.mark.parametrize(
    ("before", "idle_ttl", "moment"),
    [
        (EMPTY, 1.0, None),
        (BUSY, 1.0, None),
        (LOADING, 1.0, None),
        (ORPHANED, None, 95.0 + SETTINGS.load_rollback),
        (IDLE, None, None),
        (IDLE, 60.0, 110.0),
        (READY, None, 98.0 + SETTINGS.load_rollback),
        (READY, 1000.0, 98.0 + SETTINGS.load_rollback),
        (READY, 57.0, 107.0),
    ],
)
def test_time_alone_changes_something_only_at_its_moment(
    before: SlotState, idle_ttl: float | None, moment: float | None
) -> None:
    assert due(before, SETTINGS, idle_ttl) == moment
    if before.name == "Ready" and moment is not None:
        tick = ev.Ticked(idle_ttl=idle_ttl)
        assert transition(before, tick, moment - 0.1, SETTINGS) == (before, [])
        after, effects = transition(before, tick, moment, SETTINGS)
        assert after == msgspec.structs.replace(before, **ALL_GONE, generation=5)
        assert effects == [closed(kill=False), *reported()]


UNLOAD = ev.UnloadAsked(reason="asked for")
BEGIN = ev.OperationStarted(lease=8, operation="turn", holder="x")


@pytest.mark.parametrize(
    ("before", "event", "refusal"),
    [
        (READY, ASK_B, ModelSwitchRequired(active="a", requested="b", in_use_by=[])),
        (BUSY, SWITCH, ModelBusy(operation="turn", holder="Zed", since=10.0, queued=0)),
        (BUSY, BEGIN, ModelBusy(operation="turn", holder="Zed", since=10.0, queued=0)),
        (BUSY, UNLOAD, ModelBusy(operation="turn", holder="Zed", since=10.0, queued=0)),
        (LOADING, SWITCH, ModelBusy(operation="load", holder="a", since=0.0, queued=0)),
        (LOADING, BEGIN, ModelBusy(operation="load", holder="a", since=0.0, queued=0)),
        (SWITCHING, UNLOAD, ModelBusy(operation="load", holder="a", since=0.0, queued=0)),
        (LOST, ASK_A, NotOwner(owner=None)),
        (LOST, BEGIN, NotOwner(owner=None)),
        (ENDING, ASK_A, DaemonRestarting(hint="it is shutting down", retryable=True)),
        (ENDING, BEGIN, DaemonRestarting(hint="it is shutting down", retryable=True)),
        (EMPTY, BEGIN, ModelNotActive(requested="the model")),
        (FAILED, BEGIN, ModelNotActive(requested="the model")),
    ],
)
def test_a_refusal_says_all_that_a_person_needs(before: SlotState, event: ev.Event, refusal: ModeldError) -> None:
    with pytest.raises(type(refusal)) as refused:
        transition(before, event, NOW, SETTINGS)
    assert refused.value.to_wire() == refusal.to_wire()
