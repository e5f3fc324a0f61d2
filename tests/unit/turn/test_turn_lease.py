"""Leases that cannot leak, stages that people see, and the reaper that clears only what is proven gone."""

from __future__ import annotations

import pytest

from modeld.turn.lease import LeaseTable, TurnLease
from modeld.turn.reaper import EngineTruth, Reaper
from shared.protocol import api
from shared.settings import Settings

pytestmark = pytest.mark.unit

SETTINGS = Settings()


class Changes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def table(changes: Changes) -> LeaseTable:
    return LeaseTable(changes)


def begin(table: LeaseTable, now: float = 0.0) -> TurnLease:
    return table.begin("turn", "Zed", now)


def stage(table: LeaseTable, lease: TurnLease) -> str:
    view = table.view(lease.number)
    assert view is not None
    return view.stage


def test_numbers_are_minted_here_and_differ(table: LeaseTable) -> None:
    assert begin(table).number != begin(table).number


def test_an_ended_lease_is_inert(table: LeaseTable, changes: Changes) -> None:
    lease = begin(table)
    lease.end()
    before = changes.count
    lease.observe(api.TextDelta(text="late"), 5.0)
    lease.pin(3, 5.0)
    lease.stage("generating", 5.0)
    lease.end()
    assert table.views() == []
    assert changes.count == before


def test_stages_follow_the_events_also_when_an_opening_event_is_lost(table: LeaseTable) -> None:
    lease = begin(table)
    assert stage(table, lease) == "queued"
    lease.observe(api.Loading(fraction=0.5), 1.0)
    assert stage(table, lease) == "loading"
    lease.observe(api.Prefix(reused=1, total=9), 1.0)
    assert stage(table, lease) == "prefix"
    lease.observe(api.Prefill(done=4, total=9), 1.0)
    assert stage(table, lease) == "prefill"
    lease.observe(api.ReasoningDelta(text="hm"), 1.0)
    assert stage(table, lease) == "thinking"
    lease.observe(api.TextDelta(text="so"), 1.0)
    assert stage(table, lease) == "generating"


def test_only_a_change_is_told(table: LeaseTable, changes: Changes) -> None:
    lease = begin(table)
    lease.observe(api.TextDelta(text="a"), 1.0)
    before = changes.count
    for _ in range(100):
        lease.observe(api.TextDelta(text="b"), 2.0)
    assert changes.count == before


def test_a_job_names_its_process(table: LeaseTable) -> None:
    lease = begin(table)
    lease.process(42, "token")
    view = table.view(lease.number)
    assert view is not None
    assert (view.pid, view.start_token) == (42, "token")


# --- the reaper --------------------------------------------------------------------------------

IDLE = EngineTruth(running=None)


def rounds(table: LeaseTable, truth: EngineTruth | None, start: float, count: int) -> list[int]:
    reaper = Reaper(SETTINGS)
    reaped = []
    for number in range(count):
        reaped += [one.number for one in reaper.reconcile(table, truth, start + number)]
    return reaped


def test_three_contradictions_after_silence_clear_a_lease_and_report_it(table: LeaseTable) -> None:
    lease = begin(table)
    lease.pin(9, 0.0)
    lease.observe(api.ReasoningDelta(text="hm"), 0.0)
    reaper = Reaper(SETTINGS)
    assert reaper.reconcile(table, IDLE, 5.0) == []
    assert reaper.reconcile(table, IDLE, 6.0) == []
    (reaped,) = reaper.reconcile(table, IDLE, 7.0)
    assert (reaped.number, reaped.stage, reaped.holder, reaped.age_s) == (lease.number, "thinking", "Zed", 7.0)
    assert table.views() == []


def test_a_lease_that_speaks_is_no_candidate_whatever_the_engine_says(table: LeaseTable) -> None:
    lease = begin(table)
    lease.pin(9, 0.0)
    for second in range(30):
        lease.observe(api.TextDelta(text="x"), float(second))
        assert rounds(table, IDLE, float(second), 1) == []


def test_any_signal_resets_the_count(table: LeaseTable) -> None:
    lease = begin(table)
    lease.pin(9, 0.0)
    assert rounds(table, IDLE, 5.0, 2) == []
    lease.observe(api.TextDelta(text="x"), 7.0)
    assert rounds(table, IDLE, 12.0, 2) == []


def test_an_engine_that_works_on_it_resets_the_count(table: LeaseTable) -> None:
    begin(table).pin(9, 0.0)
    assert rounds(table, IDLE, 5.0, 2) == []
    assert rounds(table, EngineTruth(running=9), 7.0, 1) == []
    assert rounds(table, IDLE, 8.0, 2) == []


def test_a_failed_sample_is_no_evidence(table: LeaseTable) -> None:
    begin(table).pin(9, 0.0)
    assert rounds(table, IDLE, 5.0, 2) == []
    assert rounds(table, None, 7.0, 10) == []
    assert len(rounds(table, IDLE, 17.0, 1)) == 1  # the count stood still, it was not cleared


def test_a_pinned_lease_is_judged_by_its_own_number(table: LeaseTable) -> None:
    """Another one's busy engine is no proof of this one's life."""
    dead, alive = begin(table), begin(table)
    dead.pin(8, 0.0)
    alive.pin(9, 0.0)
    assert rounds(table, EngineTruth(running=9), 5.0, 3) == [dead.number]
    assert table.view(alive.number) is not None


def test_an_unpinned_lease_is_cleared_only_when_the_engine_is_wholly_idle(table: LeaseTable) -> None:
    lease = begin(table)
    assert rounds(table, EngineTruth(running=3), 5.0, 5) == []
    assert rounds(table, IDLE, 10.0, 3) == [lease.number]


def test_pins_are_forgotten_when_the_worker_is_replaced(table: LeaseTable) -> None:
    """A number of the old worker may come up again in the new one, for other work."""
    lease = begin(table)
    lease.pin(1, 0.0)
    table.forget_pins()
    view = table.view(lease.number)
    assert view is not None
    assert view.pin is None
    assert rounds(table, EngineTruth(running=7), 5.0, 5) == []


def test_a_silent_lease_is_a_suspect_only_after_the_silence(table: LeaseTable) -> None:
    begin(table)
    reaper = Reaper(SETTINGS)
    assert reaper.suspects(table, 4.9) == []
    assert len(reaper.suspects(table, 5.0)) == 1
