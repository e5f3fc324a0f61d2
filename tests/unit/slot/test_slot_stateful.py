"""The machine under arbitrary events and faults, against a model of the real processes beside it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.core.machine import Machine
from modeld.slot.core.state import validate
from shared.errors import ModeldError
from shared.settings import Settings
from unit_slot_identities import asked, resolved

pytestmark = pytest.mark.unit

NAMES = st.sampled_from("abc")
CALLERS = st.integers(1, 4)
ERROR = {"code": -32013, "message": "no", "data": {"kind": "model_load_failed"}}


class SlotWorld(RuleBasedStateMachine):
    """Processes that start, import, load, crash and die late, and clients that vanish; the machine in the middle."""

    @initialize()
    def begin(self) -> None:
        self.machine = Machine(Settings())
        self.now = 0.0
        self.alive: set[int] = set()  # processes not proven gone
        self.loaded: set[int] = set()  # processes that were given a model
        self.dying: set[int] = set()
        self.importing: set[int] = set()
        self.checks: list[int] = []
        self.loads: dict[int, tuple[int, str]] = {}
        self.open_jobs: set[int] = set()
        self.lease = 0
        self.open_lease: int | None = None
        self.generation = 0

    def feed(self, event: ev.Event) -> bool:
        try:
            effects = self.machine.feed(event, self.now)
        except ModeldError:
            return False  # a typed refusal: nothing has changed
        for effect in effects:
            self.carry_out(effect)
        state = self.machine.state
        if state.load is not None:
            self.open_jobs.add(state.load.number)
        return True

    def carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.StartWorker():
                self.alive.add(effect.worker)
                self.importing.add(effect.worker)
            case fx.CloseWorker():
                self.dying.add(effect.worker)
            case fx.CheckMemory():
                self.checks.append(effect.job)
            case fx.SendLoad():
                assert not (self.loaded & self.alive), "a second model beside a living one"
                assert effect.worker in self.alive
                self.loaded.add(effect.worker)
                state = self.machine.state
                assert state.load is not None
                self.loads[effect.job] = (effect.worker, state.load.target.name)
            case fx.FinishLoad():
                assert effect.job in self.open_jobs, "a load was finished twice"
                self.open_jobs.discard(effect.job)
            case fx.FailOperation():
                assert effect.lease == self.open_lease
                self.open_lease = None
            case fx.SaveGeneration():
                assert effect.generation > self.generation
                self.generation = effect.generation
            case _:
                return

    # --- requests --------------------------------------------------------------------------------

    @rule(name=NAMES, caller=CALLERS, switch=st.booleans())
    def ask(self, name: str, caller: int, switch: bool) -> None:
        self.feed(ev.LoadAsked(target=asked(name), caller=caller, allow_switch=switch))

    @rule(caller=CALLERS)
    def vanish(self, caller: int) -> None:
        self.feed(ev.CallerGone(caller=caller))

    @rule()
    def unload(self) -> None:
        self.feed(ev.UnloadAsked(reason="asked for"))

    @rule(seconds=st.floats(0.1, 400.0), idle=st.sampled_from([None, 5.0, 300.0]))
    def pass_time(self, seconds: float, idle: float | None) -> None:
        self.now += seconds
        self.feed(ev.Ticked(idle_ttl=idle))

    @precondition(lambda self: self.open_lease is None)
    @rule()
    def start_operation(self) -> None:
        self.lease += 1
        if self.feed(ev.OperationStarted(lease=self.lease, operation="turn", holder="x")):
            self.open_lease = self.lease

    @rule(valid=st.booleans(), late=st.booleans())
    def end_operation(self, valid: bool, late: bool) -> None:
        lease = max(self.lease - 1, 0) if late else self.lease
        self.feed(ev.OperationEnded(lease=lease, state_valid=valid))
        if lease == self.open_lease:
            self.open_lease = None

    @rule()
    def operation_is_stuck(self) -> None:
        self.feed(ev.OperationStuck(lease=self.lease, reason="stuck"))

    # --- the processes -------------------------------------------------------------------------

    @precondition(lambda self: bool(self.importing))
    @rule(data=st.data())
    def import_done(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.importing)))
        self.importing.discard(worker)
        if worker in self.alive:
            self.feed(ev.WorkerUp(worker=worker))

    @precondition(lambda self: bool(self.alive))
    @rule(data=st.data())
    def process_ends(self, data: st.DataObject) -> None:
        """Asked to or not: a crash at any step, the load included."""
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(worker)
        self.loaded.discard(worker)
        self.importing.discard(worker)
        self.dying.discard(worker)
        self.feed(ev.WorkerGone(worker=worker, reason="gone"))

    @precondition(lambda self: bool(self.checks))
    @rule(enough=st.booleans())
    def memory_answer(self, enough: bool) -> None:
        job = self.checks.pop(0)
        self.feed(ev.MemoryChecked(job=job) if enough else ev.LoadRefused(job=job, error=ERROR))

    @precondition(lambda self: bool(self.loads))
    @rule(data=st.data(), works=st.booleans())
    def load_answer(self, data: st.DataObject, works: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.loads)))
        _, name = self.loads.pop(job)
        self.feed(ev.LoadDone(job=job, identity=resolved(name)) if works else ev.LoadRefused(job=job, error=ERROR))

    # --- ownership -----------------------------------------------------------------------------

    @rule()
    def lose_owner(self) -> None:
        self.feed(ev.OwnerLost())

    @rule()
    def lose_device(self) -> None:
        self.feed(ev.DeviceLost(error=ERROR))
        assert self.machine.state.active is None

    @precondition(lambda self: self.machine.state.name == "LostOwner" and not self.machine.state.closing)
    @rule(floor=st.integers(0, 50))
    def own_again(self, floor: int) -> None:
        self.feed(ev.OwnerRenewed(floor=floor))
        self.generation = max(self.generation, floor)

    # --- always --------------------------------------------------------------------------------

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "machine"):
            return
        state = self.machine.state
        validate(state)
        assert len(self.loaded & self.alive) <= 1, "two resident models"
        assert state.generation >= self.generation
        known = state.closing | ({state.worker} if state.worker is not None else set())
        assert self.alive <= known, "a living process that the machine has forgotten"
        assert state.closing <= self.dying
        assert (state.operation is not None) == (self.open_lease is not None)
        assert self.open_jobs == ({state.load.number} if state.load is not None else set())


SlotWorld.TestCase.settings = settings(stateful_step_count=60, suppress_health_check=list(HealthCheck))
test_the_slot_holds_under_faults = SlotWorld.TestCase
