"""The slot's rules, step by step: every pair of state and event, and each rule of the blueprint."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core.machine import IGNORED, TABLE, IllegalEvent, Machine, due, transition
from modeld.slot.core.state import NAMES, LoadJob, Name, Operation, SlotState, validate
from shared.errors import ModelBusy, ModeldError, ModelNotActive, ModelSwitchRequired, NotOwner
from shared.settings import Settings
from unit_slot_identities import asked, resolved

pytestmark = pytest.mark.unit

SETTINGS = Settings()
ERROR: dict[str, Any] = {"code": -32013, "message": "no", "data": {"kind": "model_load_failed"}}


class Driver:
    """A machine whose every step is validated, with helpers that walk it somewhere."""

    def __init__(self) -> None:
        self.machine = Machine(SETTINGS)
        self.now = 0.0

    @property
    def state(self) -> SlotState:
        return self.machine.state

    def named(self) -> str:
        return self.machine.state.name

    def feed(self, event: ev.Event, after: float = 1.0) -> list[fx.Effect]:
        self.now += after
        effects = self.machine.feed(event, self.now)
        validate(self.machine.state)
        return effects

    def load(self, name: str = "a", *, switch: bool = False, caller: int = 1) -> list[fx.Effect]:
        """Ask, and let the worker load it to the end."""
        effects = self.feed(ev.LoadAsked(target=asked(name), caller=caller, allow_switch=switch))
        for worker in list(self.state.closing):
            self.feed(ev.WorkerGone(worker=worker, reason="closed"))
        assert self.state.worker is not None
        assert self.state.load is not None
        job = self.state.load.number
        self.feed(ev.WorkerUp(worker=self.state.worker))
        self.feed(ev.MemoryChecked(job=job))
        self.feed(ev.LoadDone(job=job, identity=resolved(name)))
        return effects

    def start(self, lease: int = 7) -> None:
        self.feed(ev.OperationStarted(lease=lease, operation="turn", holder="Zed"))


@pytest.fixture
def slot() -> Driver:
    return Driver()


def kinds(effects: list[fx.Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


# --- every pair --------------------------------------------------------------------------------


def state_named(name: Name) -> SlotState:
    job = LoadJob(number=1, target=asked(), callers=frozenset({1}))
    shapes: dict[Name, SlotState] = {
        "Empty": SlotState(),
        "Loading": SlotState(name="Loading", load=job, worker=1),
        "Ready": SlotState(name="Ready", active=resolved(), worker=1),
        "Busy": SlotState(
            name="Busy",
            active=resolved(),
            worker=1,
            operation=Operation(lease=7, kind="turn", holder="Zed", since=0.0),
        ),
        "Switching": SlotState(name="Switching", load=job, worker=2, closing=frozenset({1})),
        "Unloading": SlotState(name="Unloading", closing=frozenset({1})),
        "Failed": SlotState(name="Failed", error=ERROR),
        "ShuttingDown": SlotState(name="ShuttingDown", closing=frozenset({1})),
        "LostOwner": SlotState(name="LostOwner", closing=frozenset({1})),
    }
    return msgspec.structs.replace(shapes[name], next_worker=10, next_job=10)


SAMPLES: dict[type[ev.Event], list[ev.Event]] = {
    ev.LoadAsked: [
        ev.LoadAsked(target=asked(name), caller=2, allow_switch=switch)
        for name, switch in itertools.product("ab", (False, True))
    ],
    ev.CallerGone: [ev.CallerGone(caller=1), ev.CallerGone(caller=99)],
    ev.LoadAbandoned: [ev.LoadAbandoned(job=1, error=ERROR), ev.LoadAbandoned(job=99, error=ERROR)],
    ev.UnloadAsked: [ev.UnloadAsked(reason="asked for")],
    ev.WorkerUp: [ev.WorkerUp(worker=1), ev.WorkerUp(worker=2), ev.WorkerUp(worker=99)],
    ev.WorkerGone: [ev.WorkerGone(worker=number, reason="x") for number in (1, 2, 99)],
    ev.MemoryChecked: [ev.MemoryChecked(job=99)],
    ev.LoadRefused: [ev.LoadRefused(job=1, error=ERROR), ev.LoadRefused(job=99, error=ERROR)],
    ev.LoadDone: [ev.LoadDone(job=99, identity=resolved())],
    ev.OperationStarted: [ev.OperationStarted(lease=8, operation="turn", holder="VS Code")],
    ev.OperationEnded: [
        ev.OperationEnded(lease=lease, state_valid=valid) for lease, valid in ((7, True), (7, False), (99, True))
    ],
    ev.OperationStuck: [ev.OperationStuck(lease=7, reason="x"), ev.OperationStuck(lease=99, reason="x")],
    ev.Ticked: [ev.Ticked(idle_ttl=None), ev.Ticked(idle_ttl=1.0), ev.Ticked(idle_ttl=1e9)],
    ev.OwnerLost: [ev.OwnerLost()],
    ev.DeviceLost: [ev.DeviceLost(error=ERROR)],
    ev.OwnerRenewed: [ev.OwnerRenewed(floor=5)],
    ev.GenerationFloor: [ev.GenerationFloor(floor=5)],
    ev.ShutdownAsked: [ev.ShutdownAsked()],
}

#: The only pairs that may never happen; the driver does not produce them.
ILLEGAL = {(name, ev.OwnerRenewed) for name in NAMES if name != "LostOwner"} | {
    (name, ev.GenerationFloor) for name in NAMES if name not in ("Empty", "Failed")
}


def test_every_event_has_a_sample() -> None:
    assert set(SAMPLES) == set(ev.ALL)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ev.ALL, ids=lambda kind: kind.__name__)
def test_every_pair_is_handled_ignored_or_illegal(name: Name, kind: type[ev.Event]) -> None:
    pair = (name, kind)
    assert (pair in TABLE) + (pair in IGNORED) + (pair in ILLEGAL) == 1
    for event in SAMPLES[kind]:
        before = state_named(name)
        validate(before)
        try:
            after, effects = transition(before, event, 100.0, SETTINGS)
        except IllegalEvent:
            # A new owner before the old worker is gone is the one illegal event of a handled pair.
            assert pair in ILLEGAL or (pair == ("LostOwner", ev.OwnerRenewed) and before.closing)
        except ModeldError:
            assert pair in TABLE  # a typed refusal changes nothing
        else:
            validate(after)
            assert after.generation >= before.generation
            if pair in IGNORED:
                assert after is before
                assert effects == []


def test_an_illegal_event_carries_the_story(slot: Driver) -> None:
    slot.load()
    event = ev.GenerationFloor(floor=1)
    with pytest.raises(IllegalEvent) as caught:
        slot.machine.feed(event, 9.0)
    assert "LoadDone" in "".join(caught.value.history)
    assert str(caught.value).startswith("GenerationFloor in Ready\n")
    assert caught.value.event is event
    with pytest.raises(IllegalEvent) as early:
        transition(state_named("Ready"), event, 9.0, SETTINGS)
    assert early.value.event is event
    assert slot.named() == "Ready"


def test_the_story_is_bounded(slot: Driver) -> None:
    slot.load()
    for _ in range(60):
        slot.feed(ev.Ticked(idle_ttl=None))
    assert len(slot.machine.history) == 40


# --- loading -----------------------------------------------------------------------------------


def test_a_load_is_sent_once_however_often_its_memory_is_found(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked(), caller=1, allow_switch=False))
    assert slot.state.worker is not None
    assert slot.state.load is not None
    slot.feed(ev.WorkerUp(worker=slot.state.worker))
    checked = ev.MemoryChecked(job=slot.state.load.number)
    assert kinds(slot.feed(checked)) == ["SendLoad"]
    assert slot.feed(checked) == []


def test_first_load_goes_from_empty_over_loading_to_ready(slot: Driver) -> None:
    effects = slot.feed(ev.LoadAsked(target=asked(), caller=1))
    assert slot.named() == "Loading"
    assert kinds(effects) == ["StartWorker", "SaveGeneration", "Announce"]
    assert kinds(slot.feed(ev.WorkerUp(worker=1))) == ["CheckMemory"]
    assert kinds(slot.feed(ev.MemoryChecked(job=1))) == ["SendLoad"]
    effects = slot.feed(ev.LoadDone(job=1, identity=resolved()))
    assert kinds(effects) == ["FinishLoad", "Announce"]
    assert slot.named() == "Ready"
    assert slot.state.generation == 1


def test_loading_the_same_identity_reuses_slot_and_generation(slot: Driver) -> None:
    slot.load()
    before = slot.state.generation
    assert slot.feed(ev.LoadAsked(target=asked(), caller=2)) == []
    assert (slot.state.name, slot.state.generation) == ("Ready", before)


def test_another_identity_needs_explicit_switch_intent(slot: Driver) -> None:
    slot.load("a")
    with pytest.raises(ModelSwitchRequired) as caught:
        slot.feed(ev.LoadAsked(target=asked("b"), caller=2))
    assert (caught.value.active, caught.value.requested) == ("a", "b")
    assert slot.named() == "Ready"


def test_one_active_model_slot(slot: Driver) -> None:
    """The invariant by its name: the next model is given to a worker only when the last one is proven gone."""
    slot.load("a")
    effects = slot.feed(ev.LoadAsked(target=asked("b"), caller=2, allow_switch=True))
    assert kinds(effects)[:2] == ["CloseWorker", "StartWorker"]  # the next one imports meanwhile
    assert slot.named() == "Switching"
    assert slot.state.active is None
    assert slot.feed(ev.WorkerUp(worker=2)) == []  # up first: it has to wait for the old one
    assert kinds(slot.feed(ev.WorkerGone(worker=1, reason="closed"))) == ["Announce", "CheckMemory"]
    assert kinds(slot.feed(ev.MemoryChecked(job=2))) == ["SendLoad"]
    slot.feed(ev.LoadDone(job=2, identity=resolved("b")))
    assert slot.state.active == resolved("b")


def test_a_switch_bumps_the_generation_once(slot: Driver) -> None:
    slot.load("a")
    effects = slot.load("b", switch=True)
    assert slot.state.generation == 2
    assert fx.SaveGeneration(generation=2) in effects


def test_switching_while_busy_is_refused(slot: Driver) -> None:
    slot.load("a")
    slot.start()
    with pytest.raises(ModelBusy) as caught:
        slot.feed(ev.LoadAsked(target=asked("b"), caller=2, allow_switch=True), after=4.0)
    assert (caught.value.operation, caught.value.holder, caught.value.since) == ("turn", "Zed", 4.0)


def test_a_failed_switch_leaves_failed_and_never_the_old_model(slot: Driver) -> None:
    slot.load("a")
    slot.feed(ev.LoadAsked(target=asked("b"), caller=2, allow_switch=True))
    slot.feed(ev.WorkerGone(worker=1, reason="closed"))
    slot.feed(ev.WorkerUp(worker=2))
    effects = slot.feed(ev.LoadRefused(job=2, error=ERROR))
    assert effects[0] == fx.FinishLoad(job=2, error=ERROR)
    assert fx.CloseWorker(worker=2, kill=True) in effects
    slot.feed(ev.WorkerGone(worker=2, reason="killed"))
    assert (slot.state.name, slot.state.active, slot.state.error) == ("Failed", None, ERROR)


def test_failed_can_be_left_by_load_and_by_unload(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked(), caller=1))
    slot.feed(ev.WorkerGone(worker=1, reason="it crashed"))
    assert slot.named() == "Failed"
    slot.load("b", switch=False)
    assert slot.named() == "Ready"
    slot.feed(ev.WorkerGone(worker=2, reason="it crashed"))
    assert slot.named() == "Failed"
    slot.feed(ev.UnloadAsked(reason="asked for"))
    assert slot.named() == "Empty"
    assert slot.state.error is None


def test_concurrent_loads_of_one_identity_share_one_load(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked(), caller=1))
    assert slot.feed(ev.LoadAsked(target=asked(), caller=2)) == []
    assert slot.state.load is not None
    assert slot.state.load.callers == {1, 2}
    with pytest.raises(ModelBusy):
        slot.feed(ev.LoadAsked(target=asked("b"), caller=3, allow_switch=True))


def test_a_load_is_rolled_back_ten_seconds_after_its_last_caller_went(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked(), caller=1))
    slot.feed(ev.LoadAsked(target=asked(), caller=2))
    slot.feed(ev.CallerGone(caller=1))
    assert due(slot.state, SETTINGS, None) is None
    slot.feed(ev.CallerGone(caller=2))
    assert due(slot.state, SETTINGS, None) == slot.now + 10
    assert slot.feed(ev.Ticked(idle_ttl=None), after=9.9) == []
    effects = slot.feed(ev.Ticked(idle_ttl=None), after=0.2)
    assert fx.CloseWorker(worker=1, kill=True) in effects
    slot.feed(ev.WorkerGone(worker=1, reason="killed"))
    assert slot.named() == "Empty"


def test_a_caller_that_comes_back_in_time_keeps_the_load(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked(), caller=1))
    slot.feed(ev.CallerGone(caller=1))
    slot.feed(ev.LoadAsked(target=asked(), caller=2))
    assert slot.feed(ev.Ticked(idle_ttl=None), after=60.0) == []
    assert slot.named() == "Loading"


def test_a_load_nobody_waits_for_is_rolled_back_at_once_when_another_is_wanted(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked("a"), caller=1))
    slot.feed(ev.CallerGone(caller=1))
    effects = slot.feed(ev.LoadAsked(target=asked("b"), caller=2))
    assert fx.CloseWorker(worker=1, kill=True) in effects
    assert slot.named() == "Switching"
    assert slot.state.closing == {1}
    assert slot.state.worker == 2


def test_a_load_that_ends_after_its_callers_went_is_unloaded_unless_used(slot: Driver) -> None:
    slot.feed(ev.LoadAsked(target=asked(), caller=1))
    slot.feed(ev.WorkerUp(worker=1))
    slot.feed(ev.MemoryChecked(job=1))
    slot.feed(ev.CallerGone(caller=1))
    slot.feed(ev.LoadDone(job=1, identity=resolved()))
    assert slot.named() == "Ready"
    slot.feed(ev.Ticked(idle_ttl=None), after=10.0)
    assert slot.named() == "Unloading"


def test_unload_is_idempotent(slot: Driver) -> None:
    assert slot.feed(ev.UnloadAsked(reason="asked for")) == []
    slot.load()
    slot.feed(ev.UnloadAsked(reason="asked for"))
    generation = slot.state.generation
    assert slot.feed(ev.UnloadAsked(reason="asked for")) == []
    slot.feed(ev.WorkerGone(worker=1, reason="closed"))
    slot.feed(ev.UnloadAsked(reason="asked for"))
    assert (slot.state.name, slot.state.generation) == ("Empty", generation)


def test_a_load_during_unload_waits_for_the_old_worker(slot: Driver) -> None:
    slot.load("a")
    slot.feed(ev.UnloadAsked(reason="asked for"))
    slot.feed(ev.LoadAsked(target=asked("b"), caller=2))
    assert slot.named() == "Switching"
    assert slot.feed(ev.WorkerUp(worker=2)) == []
    assert "CheckMemory" in kinds(slot.feed(ev.WorkerGone(worker=1, reason="closed")))


# --- operations --------------------------------------------------------------------------------


def test_an_operation_needs_a_model(slot: Driver) -> None:
    with pytest.raises(ModelNotActive):
        slot.start()


def test_one_operation_at_a_time(slot: Driver) -> None:
    slot.load()
    slot.start(lease=1)
    with pytest.raises(ModelBusy):
        slot.start(lease=2)


def test_a_cancel_with_valid_state_returns_the_same_generation_to_ready(slot: Driver) -> None:
    slot.load()
    before = slot.state.generation
    slot.start(lease=7)
    slot.feed(ev.OperationEnded(lease=7, state_valid=True))
    assert (slot.state.name, slot.state.generation) == ("Ready", before)


def test_a_cancel_without_valid_state_closes_the_slot_and_bumps_the_generation(slot: Driver) -> None:
    slot.load()
    before = slot.state.generation
    slot.start(lease=7)
    effects = slot.feed(ev.OperationEnded(lease=7, state_valid=False))
    assert fx.CloseWorker(worker=1, kill=True) in effects
    assert slot.state.generation == before + 1
    slot.feed(ev.WorkerGone(worker=1, reason="killed"))
    assert slot.named() == "Empty"


def test_a_stuck_operation_costs_the_worker_and_is_reported(slot: Driver) -> None:
    slot.load()
    slot.start(lease=7)
    effects = slot.feed(ev.OperationStuck(lease=7, reason="it did not stop"))
    assert kinds(effects)[:2] == ["FailOperation", "CloseWorker"]
    assert slot.feed(ev.OperationEnded(lease=7, state_valid=True)) == []  # late: changes nothing


def test_a_late_end_of_an_older_lease_changes_nothing(slot: Driver) -> None:
    slot.load()
    slot.start(lease=7)
    slot.feed(ev.OperationEnded(lease=7))
    slot.start(lease=8)
    assert slot.feed(ev.OperationEnded(lease=7, state_valid=False)) == []
    assert slot.named() == "Busy"


def test_a_crash_in_a_turn_fails_it_with_the_new_generation(slot: Driver) -> None:
    slot.load()
    slot.start(lease=7)
    effects = slot.feed(ev.WorkerGone(worker=1, reason="killed by SIGKILL"))
    failed = effects[0]
    assert isinstance(failed, fx.FailOperation)
    assert failed.error["data"] == {"kind": "engine_failed", "reason": "killed by SIGKILL", "generation": 2}
    assert slot.named() == "Failed"


# --- time, owner, end --------------------------------------------------------------------------


def test_the_model_is_reaped_when_idle_and_the_generation_rises(slot: Driver) -> None:
    slot.load()
    assert due(slot.state, SETTINGS, 300.0) == slot.now + 300
    assert slot.feed(ev.Ticked(idle_ttl=300.0), after=299.0) == []
    slot.feed(ev.Ticked(idle_ttl=300.0), after=1.5)
    assert (slot.state.name, slot.state.generation) == ("Unloading", 2)


def test_an_operation_that_is_no_use_does_not_extend_the_idle_timer(slot: Driver) -> None:
    slot.load()
    used = slot.state.used_at
    slot.start(lease=7)
    slot.feed(ev.OperationEnded(lease=7, counts_as_use=False))
    assert slot.state.used_at == used
    slot.start(lease=8)
    slot.feed(ev.OperationEnded(lease=8))
    assert slot.state.used_at == slot.now


def test_owner_loss_kills_the_worker_and_ends_what_runs(slot: Driver) -> None:
    slot.load()
    slot.start(lease=7)
    effects = slot.feed(ev.OwnerLost())
    assert fx.CloseWorker(worker=1, kill=True) in effects
    failed = effects[0]
    assert isinstance(failed, fx.FailOperation)
    assert failed.error["data"]["kind"] == "not_owner"
    for refused in (ev.LoadAsked(target=asked(), caller=1), ev.UnloadAsked(reason="x")):
        with pytest.raises(NotOwner):
            slot.feed(refused)


def test_a_renewal_beside_a_worker_names_itself_as_what_cannot_be() -> None:
    lost = SlotState(name="LostOwner", closing=frozenset({1}))
    event = ev.OwnerRenewed(floor=3)
    with pytest.raises(IllegalEvent, match=r"^OwnerRenewed in LostOwner") as caught:
        transition(lost, event, 1.0, SETTINGS)
    assert caught.value.event is event


def test_a_new_ownership_begins_only_when_the_old_worker_is_gone(slot: Driver) -> None:
    slot.load()
    slot.feed(ev.OwnerLost())
    with pytest.raises(IllegalEvent):
        slot.machine.feed(ev.OwnerRenewed(floor=0), slot.now)
    slot.feed(ev.WorkerGone(worker=1, reason="killed"))
    slot.feed(ev.OwnerRenewed(floor=41))
    assert (slot.state.name, slot.state.generation) == ("Empty", 41)
    slot.load()
    assert slot.state.generation == 42


def test_the_generation_continues_above_the_stored_one_and_never_falls(slot: Driver) -> None:
    slot.feed(ev.GenerationFloor(floor=17))
    slot.load()
    assert slot.state.generation == 18
    slot.feed(ev.UnloadAsked(reason="x"))
    slot.feed(ev.WorkerGone(worker=1, reason="closed"))
    slot.feed(ev.GenerationFloor(floor=3))
    assert slot.state.generation == 19


def test_shutdown_closes_politely_and_refuses_the_rest(slot: Driver) -> None:
    slot.load()
    effects = slot.feed(ev.ShutdownAsked())
    assert fx.CloseWorker(worker=1, kill=False) in effects
    with pytest.raises(ModeldError):
        slot.feed(ev.LoadAsked(target=asked(), caller=1))
