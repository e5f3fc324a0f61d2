"""The graced answer: live, in the gap, past it, and the same for a bridge born in the gap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.catalog.advertised.capability import Servable, servable_backend
from shared.lease.reader import LeaseView, PresenceView, Survey

pytestmark = pytest.mark.unit

GRACE = 60.0


def lease(**changes: Any) -> LeaseView:
    fields: dict[str, Any] = {
        "standing": "released" if changes.get("released_reason") else "dead",
        "epoch": 3,
        "age_s": 3.0,
        "instance": "o",
        "backend": "llama",
        "ttl": 10.0,
    }
    return LeaseView(**(fields | changes))


def instance(**changes: Any) -> PresenceView:
    fields: dict[str, Any] = dict.fromkeys(("endpoint", "token_file", "start_token", "host", "version"), "")
    fields |= {"instance": "i", "backend": "openvino", "pid": 1, "protocol_min": 1, "protocol_max": 1, "started": 1.0}
    return PresenceView(**(fields | {"dead": bool(changes.get("ended_reason")), "same_boot": True} | changes))


def answer(last: LeaseView | None = None, *instances: PresenceView, problem: str = "", **options: Any) -> Servable:
    survey = Survey(last=last, owner=last, instances=list(instances), problem=problem)
    noticed = options.pop("noticed", {})
    return servable_backend(survey, noticed, grace=GRACE, **options)


def test_nothing_known() -> None:
    found = answer()
    assert (found.backend, found.standing, found.ever) == ("", "none", False)


def test_a_daemon_that_answers_needs_no_records() -> None:
    assert answer(connected="openvino") == Servable(backend="openvino", standing="live")


def test_a_live_owner() -> None:
    found = answer(lease(standing="held"), instance())
    assert (found.backend, found.standing, found.state) == ("llama", "live", "")


def test_a_live_instance_that_owns_nothing_yet() -> None:
    assert answer(None, instance()).backend == "openvino"
    assert answer(lease(age_s=9999.0), instance()).standing == "live"


def test_of_several_instances_the_first_that_lives_counts() -> None:
    """A survey sorts them, oldest first."""
    older, younger = instance(instance="b"), instance(instance="a", backend="llama", started=2.0)
    assert answer(None, older, younger).backend == "openvino"
    assert answer(None, instance(instance="b", dead=True), younger).backend == "llama"


@pytest.mark.parametrize(
    ("reason", "stopped"), [("stop", True), ("shutdown", True), ("restart", False), ("upgrade", False), ("lost", False)]
)
def test_the_gap_after_a_release(reason: str, stopped: bool) -> None:
    found = answer(lease(released_reason=reason))
    assert (found.backend, found.standing, found.stopped) == ("llama", "grace", stopped)
    assert found.state == ("stopped, start modeld" if stopped else "restarting")
    assert found.remaining == GRACE - 3


def test_the_gap_after_a_crash_reads_as_restarting() -> None:
    assert answer(lease()).state == "restarting"


def test_a_lease_that_nobody_renews_is_no_sign_of_life() -> None:
    assert answer(lease(standing="held", age_s=12.5)).standing == "live"
    assert answer(lease(standing="held", age_s=12.6)).standing == "grace"
    assert answer(lease(standing="held", age_s=61.0)).standing == "none"


def test_the_window_ends_exactly() -> None:
    assert answer(lease(age_s=GRACE)).standing == "grace"
    past = answer(lease(age_s=GRACE + 0.001))
    assert (past.backend, past.standing, past.state) == ("", "none", "stopped, start modeld")


def test_another_boot_says_nothing_about_now() -> None:
    assert answer(lease(same_boot=False)).standing == "none"
    assert answer(lease(standing="held", same_boot=False)).standing == "none"
    assert answer(None, instance(same_boot=False, ended_reason="restart", ended_age_s=1.0)).standing == "none"


def test_a_record_from_the_future_says_nothing() -> None:
    assert answer(lease(age_s=-5.0)).standing == "none"
    assert answer(lease(standing="held", age_s=-5.0)).standing == "none"


def test_an_instance_that_ended_in_order() -> None:
    found = answer(None, instance(ended_reason="stop", ended_age_s=2.0))
    assert (found.backend, found.stopped, found.remaining) == ("openvino", True, GRACE - 2)


def test_a_dead_instance_has_grace_from_when_it_was_noticed() -> None:
    dead = instance(dead=True)
    assert answer(None, dead).standing == "grace"
    assert answer(None, dead, noticed={"i": 59.0}).standing == "grace"
    assert answer(None, dead, noticed={"i": 61.0}).standing == "none"


def test_a_dead_owner_is_judged_by_its_lease() -> None:
    assert answer(lease(age_s=3600.0), instance(instance="o", dead=True)).standing == "none"


def test_the_last_to_go_decides() -> None:
    found = answer(lease(age_s=30.0), instance(ended_reason="restart", ended_age_s=5.0))
    assert found.backend == "openvino"


def test_unreadable_records_change_no_answer() -> None:
    before = answer(lease(standing="held"))
    assert answer(problem="Permission denied", before=before) == before
    assert answer(problem="Permission denied").standing == "none"


@given(st.floats(0, 200), st.sampled_from(["", "stop", "restart"]))
def test_a_bridge_born_in_the_gap_answers_like_one_that_saw_it(age: float, reason: str) -> None:
    seen = lease(age_s=age, released_reason=reason)
    veteran = answer(seen, noticed={"o": age, "x": 3.0}, before=Servable(backend="llama", standing="live"))
    assert veteran == answer(seen)


@given(st.lists(st.floats(0, 60), min_size=2, max_size=20))
def test_the_backend_never_changes_within_the_gap(ages: list[float]) -> None:
    assert {answer(lease(age_s=age)).backend for age in ages} == {"llama"}


def test_a_record_written_while_it_is_looked_at_is_no_record_from_the_future() -> None:
    released = answer(lease(age_s=-0.002, released_reason="restart"))
    assert (released.standing, released.backend, released.remaining) == ("grace", "llama", GRACE)
    assert answer(lease(standing="held", age_s=-0.002)).standing == "live"


def test_whether_there_ever_was_a_modeld_is_read_off_any_record() -> None:
    assert answer(lease(same_boot=False)).ever
    assert answer(lease(backend="")).ever
    assert answer(None, instance(same_boot=False, dead=True)).ever


@pytest.mark.parametrize(("reason", "stopped"), [("stop", True), ("restart", False)])
def test_past_the_grace_it_is_still_known_whether_somebody_stopped_it(reason: str, stopped: bool) -> None:
    assert answer(lease(age_s=GRACE + 1.0, released_reason=reason)).stopped is stopped


def test_an_instance_that_says_nothing_hides_none_behind_it() -> None:
    silent = [instance(backend=""), instance(same_boot=False, dead=True), instance(backend="", dead=True)]
    found = answer(None, *silent, instance(instance="z", backend="llama", dead=True))
    assert found == Servable(backend="llama", standing="grace", stopped=False, remaining=GRACE)


def test_the_moment_of_a_race_counts_and_not_an_instant_more() -> None:
    assert answer(lease(age_s=-2.0)).remaining == GRACE
    assert answer(lease(age_s=-2.001)).standing == "none"
    assert answer(lease(standing="held", age_s=-2.0)).standing == "live"
    assert answer(lease(standing="held", age_s=-2.001)).standing == "none"
