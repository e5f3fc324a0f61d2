"""Leases that cannot leak, stages that people see, and the reaper that clears only what is proven gone."""

from __future__ import annotations

import pytest

from modeld.turn.lease import LeaseTable, LeaseView, TurnLease
from modeld.turn.reaper import EngineTruth, Reaped, Reaper
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


def test_numbers_are_minted_here_and_differ(table: LeaseTable) -> None:
    assert begin(table).number != begin(table).number


def test_an_ended_lease_is_inert(table: LeaseTable, changes: Changes) -> None:
    lease = begin(table)
    assert lease.open is True
    lease.end()
    assert lease.open is False
    before = changes.count
    lease.observe(api.TextDelta(text="late"), 5.0)
    lease.pin(3, 5.0)
    lease.stage("generating", 5.0)
    lease.process(42, "token")
    lease.end()
    assert table.views() == []
    assert changes.count == before


@pytest.mark.parametrize(
    ("event", "proves", "detail"),
    [
        (api.Loading(fraction=0.5), "loading", {"fraction": 0.5}),
        (api.Prefix(reused=1, total=9), "prefix", {"reused": 1, "total": 9}),
        (api.Prefill(done=4, total=9), "prefill", {"done": 4, "total": 9}),
        (api.Thinking(), "thinking", {}),
        (api.ReasoningDelta(text="hm"), "thinking", {}),
        (api.Generating(), "generating", {}),
        (api.TextDelta(text="so"), "generating", {}),
        (api.ToolCallDelta(index=0, id="c", name="n", arguments=""), "generating", {}),
        (api.Queued(position=1), "queued", {}),
    ],
)
def test_stages_follow_the_events_also_when_an_opening_event_is_lost(
    table: LeaseTable, event: api.Event, proves: str, detail: dict[str, object]
) -> None:
    lease = table.begin("turn", "Zed", 0.0, "starting")
    lease.observe(event, 1.5)
    (view,) = table.views()
    assert (view.stage, view.detail, view.last_signal, view.started) == (proves, detail, 1.5, 0.0)


def test_a_lease_is_seen_with_all_that_is_known_of_it(table: LeaseTable) -> None:
    lease = begin(table, 2.0)
    assert table.view(lease.number) == LeaseView(
        number=1,
        operation="turn",
        holder="Zed",
        stage="queued",
        started=2.0,
        last_signal=2.0,
        strikes=0,
        pin=None,
        detail={},
    )
    lease.stage("loading", 3.0, fraction=0.25)
    lease.pin(7, 4.0)
    lease.process(42, "token")
    table.strike(lease.number, 2)
    assert table.views() == [
        LeaseView(
            number=1,
            operation="turn",
            holder="Zed",
            stage="loading",
            started=2.0,
            last_signal=4.0,
            strikes=2,
            pin=7,
            detail={"fraction": 0.25},
            pid=42,
            start_token="token",
        )
    ]


def test_a_job_of_no_engine_ends_with_its_block_however_that_ends(table: LeaseTable) -> None:
    with table.job("pull", "modeld pull", 3.0) as lease:
        (view,) = table.views()
        assert (view.number, view.operation, view.holder, view.stage) == (
            lease.number,
            "pull",
            "modeld pull",
            "running",
        )
        assert (view.started, view.on_engine) == (3.0, False)
        assert Reaper(SETTINGS).suspects(table, 1000.0) == []
        assert rounds(table, IDLE, 1000.0, 10) == []
    assert table.views() == []
    with pytest.raises(KeyError), table.job("plan", "modeld plan", 3.0, "reading"):
        assert [view.stage for view in table.views()] == ["reading"]
        raise KeyError
    assert table.views() == []


def test_a_lease_that_was_cleared_behind_its_back_is_inert(table: LeaseTable, changes: Changes) -> None:
    lease = begin(table)
    other = begin(table)
    table.drop(lease.number)
    assert table.view(lease.number) is None
    before = changes.count
    lease.stage("generating", 5.0)
    lease.pin(3, 5.0)
    lease.process(42, "token")
    table.strike(lease.number, 3)
    lease.end()
    assert [view.number for view in table.views()] == [other.number]
    assert table.views()[0].last_signal == 0.0
    assert changes.count == before


def test_each_change_of_the_set_a_stage_or_a_pin_is_reported_once(table: LeaseTable, changes: Changes) -> None:
    reported = []

    def note() -> None:
        reported.append(changes.count)

    lease = begin(table)
    note()
    lease.stage("loading", 1.0)
    note()
    lease.pin(3, 1.0)
    note()
    lease.pin(3, 2.0)  # the same again
    table.forget_pins()
    note()
    table.forget_pins()  # there is none
    lease.process(42, "token")
    lease.end()
    note()
    assert reported == [1, 2, 3, 4, 5]


def test_a_table_that_tells_nobody_works_too() -> None:
    table = LeaseTable()
    begin(table).end()
    assert table.views() == []


def test_a_pin_is_a_sign_of_life_only_where_it_is_new(table: LeaseTable) -> None:
    lease = begin(table)
    lease.pin(3, 0.0)
    table.strike(lease.number, 2)
    lease.pin(3, 4.0)
    assert [(view.last_signal, view.strikes) for view in table.views()] == [(0.0, 2)]
    lease.pin(4, 5.0)
    assert [(view.last_signal, view.strikes, view.pin) for view in table.views()] == [(5.0, 0, 4)]


def test_only_a_change_is_reported(table: LeaseTable, changes: Changes) -> None:
    lease = begin(table)
    lease.observe(api.TextDelta(text="a"), 1.0)
    before = changes.count
    for _ in range(100):
        lease.observe(api.TextDelta(text="b"), 2.0)
    assert changes.count == before


# --- the reaper --------------------------------------------------------------------------------

IDLE = EngineTruth(running=None)


def rounds(table: LeaseTable, truth: EngineTruth | None, start: float, count: int) -> list[int]:
    reaper = Reaper(SETTINGS)
    reaped = []
    for number in range(count):
        reaped += [one.number for one in reaper.reconcile(table, truth, start + number)]
    return reaped


def test_three_contradictions_after_silence_clear_a_lease_and_report_it(table: LeaseTable) -> None:
    lease = begin(table, 0.5)
    lease.pin(9, 0.5)
    lease.observe(api.ReasoningDelta(text="hm"), 0.0)
    reaper = Reaper(SETTINGS)
    assert reaper.reconcile(table, IDLE, 5.0) == []
    assert reaper.reconcile(table, IDLE, 6.0) == []
    (reaped,) = reaper.reconcile(table, IDLE, 7.0)
    assert reaped == Reaped(number=lease.number, operation="turn", holder="Zed", stage="thinking", age_s=6.5)
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


def test_a_lease_of_another_process_does_not_hide_the_ones_behind_it(table: LeaseTable) -> None:
    with table.job("pull", "modeld pull", 0.0):
        lease = begin(table)
        assert [view.number for view in Reaper(SETTINGS).suspects(table, 5.0)] == [lease.number]
        assert rounds(table, IDLE, 5.0, 3) == [lease.number]


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
    begin(table, now=100.0)
    reaper = Reaper(SETTINGS)
    assert reaper.suspects(table, 104.9) == []
    assert len(reaper.suspects(table, 105.0)) == 1


def test_a_lease_that_spoke_lately_gets_no_strike(table: LeaseTable) -> None:
    lease = begin(table, now=100.0)
    lease.stage("generating", 103.0)
    reaper, idle = Reaper(SETTINGS), EngineTruth(running=None)
    for now in (104.0, 106.0, 107.9):
        assert reaper.reconcile(table, idle, now) == []
        assert table.views()[0].strikes == 0
    reaper.reconcile(table, idle, 108.0)
    assert (table.views()[0].strikes, table.views()[0].last_signal) == (1, 103.0)
