"""The graced answer: live, in the gap, past it, and the same for a bridge born in the gap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.catalog.capability import InstanceSeen, OwnerSeen, Serveable, note_deaths, serveable_backend

pytestmark = pytest.mark.unit

WALL, AWAKE, GRACE = 1_000_000.0, 500.0, 60.0


def owner(**changes: Any) -> OwnerSeen:
    fields: dict[str, Any] = {"instance": "o", "backend": "llama", "live": False, "last_sign": WALL - 3, "boot_id": "b"}
    return OwnerSeen(**(fields | changes))


def instance(**changes: Any) -> InstanceSeen:
    fields: dict[str, Any] = {"instance": "i", "backend": "openvino", "started": 10.0, "boot_id": "b"}
    return InstanceSeen(**(fields | changes))


def answer(seen: OwnerSeen | None = None, *instances: InstanceSeen, **changes: Any) -> Serveable:
    fields: dict[str, Any] = {"wall": WALL, "awake": AWAKE, "boot_id": "b", "grace": GRACE, "noticed": {}}
    return serveable_backend(seen, instances, **(fields | changes))


def test_nothing_known() -> None:
    found = answer()
    assert (found.backend, found.standing, found.ever) == ("", "none", False)


def test_a_live_owner() -> None:
    found = answer(owner(live=True), instance())
    assert (found.backend, found.standing, found.state) == ("llama", "live", "")


def test_a_live_instance_that_owns_nothing_yet() -> None:
    assert answer(None, instance()).backend == "openvino"
    assert answer(owner(last_sign=WALL - 9999), instance()).standing == "live"


def test_the_oldest_of_several_instances() -> None:
    young, old = instance(instance="a", started=20.0, backend="llama"), instance(instance="z", started=10.0)
    assert answer(None, young, old).backend == "openvino"


@pytest.mark.parametrize(
    ("reason", "stopped"), [("stop", True), ("shutdown", True), ("restart", False), ("upgrade", False)]
)
def test_the_gap_after_a_release(reason: str, stopped: bool) -> None:
    found = answer(owner(released=reason))
    assert (found.backend, found.standing, found.stopped) == ("llama", "grace", stopped)
    assert found.state == ("stopped, start modeld" if stopped else "restarting")
    assert found.remaining == GRACE - 3


def test_the_gap_after_a_crash_reads_as_restarting() -> None:
    assert answer(owner()).state == "restarting"


def test_the_window_ends_exactly() -> None:
    assert answer(owner(last_sign=WALL - GRACE)).standing == "grace"
    past = answer(owner(last_sign=WALL - GRACE - 0.001))
    assert (past.backend, past.standing, past.state) == ("", "none", "stopped, start modeld")


def test_another_boot_says_nothing_about_now() -> None:
    assert answer(owner(boot_id="before")).standing == "none"
    assert answer(None, instance(boot_id="before", ended="restart", ended_at=WALL - 1)).standing == "none"


def test_a_record_from_the_future_says_nothing() -> None:
    assert answer(owner(last_sign=WALL + 5)).standing == "none"


def test_an_instance_that_ended_in_order() -> None:
    found = answer(None, instance(ended="stop", ended_at=WALL - 2))
    assert (found.backend, found.stopped, found.remaining) == ("openvino", True, GRACE - 2)


def test_a_dead_instance_has_grace_from_when_it_was_noticed() -> None:
    dead = instance(dead=True)
    noticed = note_deaths({}, [dead], AWAKE)
    assert answer(None, dead, noticed=noticed, awake=AWAKE + 59).standing == "grace"
    assert note_deaths(noticed, [dead], AWAKE + 61) == noticed
    assert answer(None, dead, noticed=noticed, awake=AWAKE + 61).standing == "none"
    assert note_deaths(noticed, [], AWAKE) == {}


def test_a_dead_owner_is_judged_by_its_lease() -> None:
    old, dead = owner(last_sign=WALL - 3600), instance(instance="o", dead=True)
    assert answer(old, dead, noticed={"o": AWAKE}).standing == "none"


def test_the_last_to_go_decides() -> None:
    found = answer(owner(last_sign=WALL - 30), instance(ended="restart", ended_at=WALL - 5))
    assert found.backend == "openvino"


@given(st.floats(0, 200), st.sampled_from(["", "stop", "restart"]))
def test_a_bridge_born_in_the_gap_answers_like_one_that_saw_it(age: float, reason: str) -> None:
    seen = owner(last_sign=WALL - age, released=reason)
    veteran = answer(seen, awake=AWAKE, noticed={"x": 3.0})
    newborn = answer(seen, awake=0.5)
    assert veteran == newborn


@given(st.lists(st.floats(0, 59.9), min_size=2, max_size=20))
def test_backend_and_order_never_change_within_the_gap(ages: list[float]) -> None:
    answers = {answer(owner(last_sign=WALL - age)).backend for age in sorted(ages)}
    assert answers == {"llama"}
