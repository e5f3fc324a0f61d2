"""When an instance steps in by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from modeld.owner.standby import LONGEST_POLL, Standby
from shared.lease.contender import Look
from shared.lease.policy import Mark, Sighting, Standing
from shared.lease.record import LeaseRecord, Released

pytestmark = pytest.mark.unit
PATIENCE = 12.5


def look(standing: Standing, epoch: int = 3, reason: str = "") -> Look:
    released = Released(reason=reason, at=0.0) if reason else None
    record = LeaseRecord(instance="gone", epoch=epoch, pid=1, sequence=4, released=released)
    return Look(standing=standing, sighting=Sighting(epoch=epoch, mark=Mark(epoch, 4), record=record))


def rank(place: int | None) -> Callable[[str], int | None]:
    def of(gone: str) -> int | None:
        assert gone == "gone"  # the dead owner's own presence stands in nobody's way
        return place

    return of


@pytest.mark.parametrize("end", [look("dead"), look("expired"), look("released", reason="lost")])
def test_the_oldest_steps_in_at_once_after_a_crash_it_saw(end: Look) -> None:
    standby = Standby()
    assert not standby.saw(look("held"), 0.0, rank(0), PATIENCE)
    assert standby.saw(end, 0.1, rank(0), PATIENCE)


@pytest.mark.parametrize("reason", ["stop", "restart", "upgrade", "shutdown", "withdrawn"])
def test_nobody_steps_in_after_a_wish(reason: str) -> None:
    standby = Standby()
    standby.saw(look("held"), 0.0, rank(0), PATIENCE)
    for now in (0.1, 100.0, 10_000.0):
        assert not standby.saw(look("released", reason=reason), now, rank(0), PATIENCE)


def test_a_crash_before_our_time_is_nobodys_business() -> None:
    standby = Standby()
    assert not standby.saw(look("dead"), 0.0, rank(0), PATIENCE)
    assert not standby.saw(look("dead"), 1000.0, rank(0), PATIENCE)


def test_an_ownership_that_began_and_crashed_between_two_looks_is_ours_to_follow() -> None:
    standby = Standby()
    assert not standby.saw(look("dead", epoch=3), 0.0, rank(0), PATIENCE)
    assert standby.saw(look("dead", epoch=4), 0.5, rank(0), PATIENCE)


def test_a_younger_one_waits_for_the_older_and_steps_in_only_if_they_do_not() -> None:
    standby = Standby()
    standby.saw(look("held"), 0.0, rank(2), PATIENCE)
    assert not standby.saw(look("dead"), 1.0, rank(2), PATIENCE)
    assert not standby.saw(look("dead"), 1.0 + 2 * PATIENCE - 0.1, rank(2), PATIENCE)
    assert standby.saw(look("dead"), 1.0 + 2 * PATIENCE, rank(2), PATIENCE)


def test_one_that_nobody_can_find_does_not_step_in() -> None:
    standby = Standby()
    standby.saw(look("held"), 0.0, rank(None), PATIENCE)
    assert not standby.saw(look("dead"), 1.0, rank(None), PATIENCE)


TTL = 10.0


def held(unmoved: float = 0.0) -> Look:
    record = LeaseRecord(instance="owner", epoch=3, pid=1, sequence=4, ttl=TTL)
    return Look(standing="held", sighting=Sighting(epoch=3, mark=Mark(3, 4), record=record), unmoved=unmoved)


def pause_after(look: Look, *, reported: bool = False, provable: bool = False) -> float:
    standby = Standby()
    standby.saw(look, 0.0, rank(0), PATIENCE)
    return standby.pause(TTL, reported=reported, provable=provable)


def test_a_death_that_is_reported_or_cannot_be_seen_needs_few_looks() -> None:
    assert pause_after(held(), reported=True, provable=True) == TTL / 5
    assert pause_after(held()) == TTL / 5
    assert pause_after(look("released", reason="stop")) == TTL / 5


def test_a_death_that_only_a_look_shows_is_looked_for_twice_a_second() -> None:
    assert pause_after(held(), provable=True) == LONGEST_POLL


def test_a_lease_that_stands_still_is_looked_at_when_it_would_be_free() -> None:
    assert pause_after(held(unmoved=PATIENCE - 0.3), reported=True) == pytest.approx(0.301)
    assert pause_after(held(unmoved=PATIENCE - 0.3), provable=True) == pytest.approx(0.301)


def test_after_a_crash_a_younger_one_looks_often() -> None:
    standby = Standby()
    standby.saw(held(), 0.0, rank(2), PATIENCE)
    standby.saw(look("dead"), 1.0, rank(2), PATIENCE)
    assert standby.pause(TTL, reported=False, provable=True) == LONGEST_POLL


def test_a_look_that_is_a_little_late_still_counts_whole() -> None:
    from shared.lease.contender import STEP_FRACTION

    assert pause_after(held(), reported=True) < TTL / STEP_FRACTION
