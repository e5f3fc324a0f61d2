"""Who may conclude what, with the clock passed in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease import policy
from shared.lease.policy import Liveness, Mark, Sighting, Standing, Tenure, Watched
from shared.lease.record import Identity, LeaseRecord, Released
from shared.settings import Settings

pytestmark = pytest.mark.unit

ME = Identity(pid=1, start_token="1", boot_id="boot", pid_namespace="ns", host="here")
TTL = 10.0


def other(**changes: str) -> Identity:
    return msgspec.structs.replace(ME, pid=2, **changes)


def sighting(who: Identity, *, sequence: int = 5, released: str = "", ttl: float = TTL) -> Sighting:
    record = LeaseRecord(
        instance="o",
        epoch=3,
        sequence=sequence,
        ttl=ttl,
        released=Released(reason=released, at=0.0) if released else None,
        **msgspec.structs.asdict(who),
    )
    return Sighting(epoch=3, mark=Mark(3, sequence, "o"), record=record)


@pytest.mark.parametrize("ttl", [1.0, 2.0, 10.0, 60.0])
def test_the_margin_is_the_one_of_the_settings(ttl: float) -> None:
    settings = Settings(lease_ttl=ttl)
    assert policy.margin(ttl) == settings.lease_margin
    assert policy.validity(ttl) == settings.worker_watchdog


@pytest.mark.parametrize(
    ("who", "liveness", "proven"),
    [
        (other(), "gone", True),
        (other(), "alive", False),
        (other(), "unknown", False),
        (other(pid_namespace="container"), "gone", False),
        (other(pid_namespace=""), "gone", False),
        (other(host="elsewhere"), "gone", False),
        (other(host="elsewhere", boot_id="other"), "gone", False),
        (other(host=""), "gone", False),
        (other(boot_id="other"), "alive", True),
        (other(boot_id="other", pid_namespace="container"), "unknown", True),
        (other(boot_id=""), "gone", False),
    ],
)
def test_death_is_proven_only_where_this_machine_can_know(who: Identity, liveness: Liveness, proven: bool) -> None:
    assert policy.death_proven(who, ME, liveness) is proven


@pytest.mark.parametrize(
    ("seen", "booted", "proven"),
    [
        (99.0, 100.0, True),  # it wrote last before this kernel started
        (101.0, 100.0, False),  # a container with a boot id of its own and the host's name: it may well live
        (0.0, 100.0, False),  # nobody knows when it wrote
        (101.0, None, True),  # a platform without such containers
    ],
)
def test_another_boot_proves_death_by_its_time_alone(seen: float, booted: float | None, proven: bool) -> None:
    another = other(boot_id="other")
    assert policy.death_proven(another, ME, "unknown", seen=seen, booted=booted) is proven


def test_nothing_is_proven_by_one_who_does_not_know_himself() -> None:
    blind = Identity(pid=1)
    assert not policy.death_proven(Identity(pid=2), blind, "gone")
    assert not policy.death_proven(other(boot_id="other"), msgspec.structs.replace(ME, boot_id=""), "unknown")


@pytest.mark.parametrize(
    ("seen", "unmoved", "liveness", "standing"),
    [
        (None, 0.0, "unknown", "none"),
        (sighting(other()), 0.0, "alive", "held"),
        (sighting(other()), 12.4, "alive", "held"),
        (sighting(other()), 12.5, "alive", "expired"),
        (sighting(other()), 0.0, "gone", "dead"),
        (sighting(other(), released="stop"), 0.0, "alive", "released"),
        (sighting(other(host="elsewhere")), 12.4, "gone", "held"),
        (sighting(other(host="elsewhere")), 12.5, "gone", "expired"),
        (sighting(other(), sequence=0), 0.0, "gone", "held"),
        (sighting(other(), sequence=0, released="withdrawn"), 12.4, "alive", "held"),
        (sighting(other(), sequence=0), 12.5, "gone", "expired"),
        (Sighting(epoch=3, mark=Mark(3, 0, "t/0")), 12.4, "unknown", "held"),
        (Sighting(epoch=3, mark=Mark(3, 0, "t/0")), 12.5, "unknown", "expired"),
        (Sighting(epoch=0, mark=Mark(0, 0, "missing")), 12.4, "unknown", "held"),
        (sighting(other(), ttl=60.0), 12.5, "alive", "held"),
    ],
)
def test_what_the_highest_record_means(
    seen: Sighting | None, unmoved: float, liveness: Liveness, standing: Standing
) -> None:
    assert policy.judge(seen, unmoved, ME, liveness, TTL) == standing


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=40))
def test_a_watcher_never_counts_more_than_it_was_awake_for(gaps: list[float]) -> None:
    mark, watched, now = Mark(1, 1), None, 50.0
    watched = policy.observe(watched, mark, now, 2.5)
    for gap in gaps:
        now += gap
        watched = policy.observe(watched, mark, now, 2.5)
    assert watched.unmoved <= min(sum(gaps), 2.5 * len(gaps)) + 1e-6


def test_a_mark_that_stands_is_watched_for_all_the_time_between_looks() -> None:
    mark, watched = Mark(3, 5, "o"), None
    for now, unmoved in ((10.0, 0.0), (12.0, 2.0), (15.0, 5.0), (40.0, 9.0)):
        watched = policy.observe(watched, mark, now, 4.0)
        assert watched == Watched(mark=mark, unmoved=unmoved, last=now)


@pytest.mark.parametrize("ttl", [3.0, 10.0, 60.0])
def test_two_renewals_may_fail_before_an_owner_is_in_doubt(ttl: float) -> None:
    assert policy.renew_interval(ttl) * 3 == pytest.approx(ttl)


def test_a_moved_sequence_starts_the_watch_again() -> None:
    watched = Watched(mark=Mark(1, 1), unmoved=12.0, last=5.0)
    assert policy.observe(watched, Mark(1, 2), 6.0, 2.5).unmoved == 0.0
    assert policy.observe(watched, Mark(2, 1), 6.0, 2.5).unmoved == 0.0


def test_a_clock_that_runs_backwards_adds_nothing() -> None:
    watched = Watched(mark=Mark(1, 1), unmoved=1.0, last=5.0)
    assert policy.observe(watched, Mark(1, 1), 1.0, 2.5).unmoved == 1.0


def test_everybody_stopped_together_leaves_the_owner_in_place() -> None:
    """A suspend seen by a clock that counts it, or SIGSTOP of owner and contender: one step at most is added."""
    watched = policy.observe(None, Mark(1, 1), 0.0, TTL / 4)
    watched = policy.observe(watched, Mark(1, 1), 3600.0, TTL / 4)
    assert policy.judge(sighting(other()), watched.unmoved, ME, "alive", TTL) == "held"


# --- the owner ---


def test_an_owner_is_frozen_at_ttl_less_margin_from_the_start_of_its_write() -> None:
    tenure = policy.begin(TTL, 100.0)
    assert policy.tick(tenure, 107.4).state == "valid"
    assert policy.tick(tenure, 107.5).state == "frozen"


def test_a_freeze_comes_before_any_loss_and_a_renewal_thaws() -> None:
    frozen = policy.tick(policy.begin(TTL, 100.0), 4000.0)
    assert frozen.state == "frozen"
    thawed = policy.wrote(frozen, 4000.1, 4000.2, higher=False)
    assert thawed.state == "valid"
    assert thawed.valid_until == 4007.6


def test_a_frozen_owner_is_lost_after_a_quarter_of_the_ttl() -> None:
    frozen = policy.tick(policy.begin(TTL, 100.0), 108.0)
    assert policy.tick(frozen, 110.4).state == "frozen"
    assert policy.tick(frozen, 110.5).state == "lost"


def test_a_higher_epoch_is_a_loss_at_once() -> None:
    assert policy.wrote(policy.begin(TTL, 100.0), 101.0, 101.1, higher=True).state == "lost"


@pytest.mark.parametrize(("ttl", "margin"), [(0.2, 0.1), (0.5, 0.25), (0.8, 0.25), (1.0, 0.25), (10.0, 2.5)])
def test_a_margin_never_takes_more_than_half_of_a_very_short_ttl(ttl: float, margin: float) -> None:
    assert policy.margin(ttl) == margin
    assert (policy.validity(ttl), policy.patience(ttl)) == (ttl - margin, ttl + margin)


def test_a_late_success_gives_no_validity() -> None:
    tenure = policy.begin(TTL, 100.0)
    assert policy.wrote(tenure, 101.0, 108.5, higher=False).state == "frozen"
    late = policy.wrote(tenure, 103.0, 111.0, higher=False)
    assert late.state == "frozen"
    assert policy.wrote(late, 103.0, 120.0, higher=False).state == "lost"


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20), st.booleans()), max_size=30),
    st.sampled_from([1.0, 2.0, 10.0]),
)
def test_no_history_makes_a_tenure_valid_beyond_its_last_good_write(
    history: list[tuple[float, float, bool]], ttl: float
) -> None:
    now = last_good = 100.0
    tenure, lost = policy.begin(ttl, now), False
    for pause, took, higher in history:
        started = now + pause
        now = started + took
        tenure = policy.wrote(policy.tick(tenure, started), started, now, higher=higher)
        lost = lost or higher
        if not higher and tenure.state == "valid":
            last_good = max(last_good, started)
        assert not (lost and tenure.state == "valid")
        if policy.tick(tenure, now).state == "valid":
            assert now < last_good + policy.validity(ttl)


def test_the_next_wake_is_when_time_alone_changes_the_tenure() -> None:
    tenure = policy.begin(TTL, 100.0)
    assert policy.next_wake(tenure) == 107.5
    frozen = policy.tick(tenure, 108.0)
    assert policy.next_wake(frozen) == 110.5
    assert policy.tick(frozen, 110.4).state == "frozen"
    assert policy.next_wake(policy.tick(frozen, 110.5)) is None


def test_a_thawed_tenure_freezes_again_from_its_own_moment() -> None:
    """Nothing of the first freeze is left over."""
    thawed = policy.wrote(policy.tick(policy.begin(TTL, 100.0), 108.0), 109.0, 109.1, higher=False)
    assert thawed == policy.begin(TTL, 109.0)
    assert policy.tick(policy.tick(thawed, 116.5), 118.9).state == "frozen"


@pytest.mark.parametrize(
    ("standing", "taken"), [("none", True), ("held", False), ("released", True), ("dead", True), ("expired", True)]
)
def test_only_what_is_held_is_not_taken(standing: Standing, taken: bool) -> None:
    assert policy.may_take(standing) is taken


@pytest.mark.parametrize(
    ("epochs", "judged", "now_seen", "mine"),
    [
        ([4], None, None, True),
        ([4], Mark(0, 0, "missing"), Mark(0, 0, "missing"), True),
        ([4], Mark(0, 0, "missing"), None, False),
        ([3, 4], Mark(3, 7), Mark(3, 7), True),
        ([4, 3, 1], Mark(3, 7), Mark(3, 7), True),
        ([3, 4], Mark(3, 7), Mark(3, 8), False),
        ([3, 4], Mark(3, 7), None, False),
        ([3, 4, 5], Mark(3, 7), Mark(3, 7), False),
        ([2, 4], Mark(3, 7), Mark(3, 7), False),
        ([4], Mark(3, 7), Mark(3, 7), False),
        ([3, 4], None, None, False),
    ],
)
def test_a_claim_is_confirmed_only_where_it_follows_what_was_judged(
    epochs: list[int], judged: Mark | None, now_seen: Mark | None, mine: bool
) -> None:
    assert policy.confirmed(4, epochs, judged, now_seen) is mine


@pytest.mark.parametrize("unknown", ["boot_id", "host", "pid_namespace"])
def test_who_does_not_know_himself_proves_nothing(unknown: str) -> None:
    blind = msgspec.structs.replace(ME, **{unknown: ""})
    assert policy.can_prove(other(), ME)
    assert not policy.can_prove(msgspec.structs.replace(blind, pid=2), blind)
    assert not policy.can_prove(other(**{unknown: "another"}), ME)


@pytest.mark.parametrize("state", ["lost", "released"])
def test_the_end_of_a_tenure_is_final(state: policy.TenureState) -> None:
    over = Tenure(ttl=TTL, valid_until=500.0, state=state)
    assert policy.tick(over, 1.0).state == state
    assert policy.wrote(over, 1.0, 1.1, higher=False).state == state
    assert policy.next_wake(over) is None


def test_a_standby_steps_in_after_a_crash_and_never_after_a_wish() -> None:
    for reason in ("stop", "restart", "upgrade", "shutdown", "withdrawn", "something new"):
        assert not policy.was_crash("released", sighting(other(), released=reason).record)
    assert policy.was_crash("released", sighting(other(), released="lost").record)
    assert policy.was_crash("dead", sighting(other()).record)
    assert policy.was_crash("expired", None)
    assert not policy.was_crash("held", sighting(other()).record)
    assert not policy.was_crash("none", None)


# --- what stands outside, and what is missing ---


def _seen(epoch: int, instance: str = "o", sequence: int = 4) -> Sighting:
    record = LeaseRecord(instance=instance, epoch=epoch, pid=1, sequence=sequence)
    return Sighting(epoch=epoch, mark=Mark(epoch, sequence, instance), record=record)


def _copy(epoch: int, instance: str = "o", sequence: int = 4) -> Sighting:
    return msgspec.structs.replace(_seen(epoch, instance, sequence), epoch=0, above=epoch, outside=True)


@pytest.mark.parametrize(
    ("copy", "found", "better"),
    [
        (None, None, False),
        (_copy(3), None, True),
        (_copy(3), Sighting(epoch=9, mark=Mark(9, 0), elsewhere=True), True),
        (_copy(3), Sighting(epoch=3, mark=Mark(3, 0, "t/1")), True),
        (_copy(3), _seen(3), False),
        (_copy(3, sequence=3), _seen(3), False),
        (_copy(3, sequence=5), _seen(3), True),
        (_copy(3, "another"), _seen(3), True),
        (_copy(4), _seen(3), True),
        (_copy(2, "another"), _seen(3), False),
        (Sighting(epoch=0, mark=Mark(0, 0, "t/1"), outside=True), _seen(3), False),
    ],
)
def test_the_copy_outside_counts_where_the_records_are_gone_or_older(
    copy: Sighting | None, found: Sighting | None, better: bool
) -> None:
    assert policy.contradicts(copy, found) is better


def test_a_copy_that_cannot_be_read_knows_better_only_above() -> None:
    copy = Sighting(epoch=5, above=5, mark=Mark(5, 0, ""))
    assert [policy.contradicts(copy, _seen(epoch)) for epoch in (4, 5, 6)] == [True, False, False]


def test_records_below_the_epoch_of_the_database_are_missing_and_watched() -> None:
    assert policy.missing(None, 0) is None
    assert policy.missing(None, 1) == Sighting(epoch=0, above=1, mark=Mark(0, 0, "missing 1"))
    assert policy.missing(_seen(4), 5) == Sighting(epoch=4, above=5, mark=Mark(4, 0, "missing 5"))
    assert policy.missing(_seen(5), 5) == _seen(5)
    for found in (None, _seen(4)):
        sighting = policy.missing(found, 5)
        assert sighting is not None
        assert (sighting.highest, sighting.record) == (5, None)
        assert policy.judge(sighting, 12.4, ME, "unknown", 10.0) == "held"
        assert policy.judge(sighting, 12.5, ME, "unknown", 10.0) == "expired"


@pytest.mark.parametrize(
    ("root", "boot", "here", "elsewhere"),
    [("1:2", "b", "1:2", False), ("1:2", "b", "1:3", True), ("", "b", "1:3", False), ("1:2", "c", "1:3", False)],
)
def test_a_record_is_about_the_root_that_it_names_under_one_kernel(
    root: str, boot: str, here: str, elsewhere: bool
) -> None:
    record = LeaseRecord(instance="o", epoch=1, pid=1, boot_id=boot, root=root)
    assert policy.is_elsewhere(record, here, "b") is elsewhere
