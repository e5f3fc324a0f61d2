"""What must always be true of the slot is really asked: each broken state is found out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from modeld.slot.core.events import WorkerUp
from modeld.slot.core.state import (
    NAMES,
    IllegalEvent,
    InvariantBroken,
    LoadJob,
    Name,
    Operation,
    SlotState,
    validate,
)
from unit_slot_identities import asked, resolved

pytestmark = pytest.mark.unit

ACTIVE = {"active": resolved(), "worker": 1}
LOAD = LoadJob(number=1, target=asked(), callers=frozenset({1}))
BUSY = Operation(lease=1, kind="turn", holder="Zed", since=0.0)
ERROR = {"code": -1}
#: a sound state of each name
SOUND: dict[Name, dict[str, Any]] = {
    "Empty": {},
    "Loading": {"load": LOAD, "worker": 1},
    "Ready": ACTIVE,
    "Busy": {**ACTIVE, "operation": BUSY},
    "Switching": {"load": LOAD, "worker": 1},
    "Unloading": {},
    "Failed": {"error": ERROR},
    "ShuttingDown": {},
    "LostOwner": {},
}


def job(**fields: Any) -> LoadJob:
    fields = {"number": 1, "target": asked(), "callers": frozenset({1}), **fields}
    return LoadJob(**fields)


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_state_of_each_name_passes_and_has_exactly_its_parts(name: Name) -> None:
    sound = SOUND[name]
    validate(SlotState(name=name, **sound))
    parts: dict[str, Any] = {"active": resolved(), "load": LOAD, "operation": BUSY, "worker": 1}
    for had in itertools.product((False, True), repeat=4):
        fields = {part: value for (part, value), has in zip(parts.items(), had, strict=True) if has}
        state = SlotState(name=name, error=sound.get("error"), **fields)
        if set(fields) == set(sound) - {"error"}:
            validate(state)
        else:
            with pytest.raises(InvariantBroken, match=rf"{name} has shape"):
                validate(state)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (SlotState(name="Ready", active=resolved(), worker=1, closing=frozenset({1})), "both serves and closes"),
        (SlotState(name="Ready", active=resolved(), worker=1, closing=frozenset({2})), "Ready beside a closing"),
        (SlotState(name="Failed", error=ERROR, closing=frozenset({2})), "Failed beside a closing"),
        (
            SlotState(name="Switching", load=job(up=True, sent=True), worker=1, closing=frozenset({2})),
            "a load was sent before the old worker had gone",
        ),
        (SlotState(name="Empty", error=ERROR), "Empty carries an error"),
        (SlotState(name="Failed"), "Failed without a reason"),
        (SlotState(name="Loading", load=job(orphaned_at=1.0), worker=1), "exactly when nobody waits"),
        (SlotState(name="Loading", load=job(callers=frozenset()), worker=1), "exactly when nobody waits"),
        (SlotState(name="Loading", load=job(sent=True), worker=1), "not up"),
    ],
)
def test_a_broken_state_is_found_out(state: SlotState, why: str) -> None:
    with pytest.raises(InvariantBroken, match=why):
        validate(state)


@pytest.mark.parametrize(
    "state",
    [
        SlotState(name="Switching", load=job(up=True), worker=1, closing=frozenset({2})),
        SlotState(name="Unloading", closing=frozenset({2})),
        SlotState(name="Unloading", closing=frozenset({2}), error=ERROR),
        SlotState(name="ShuttingDown", closing=frozenset({2})),
        SlotState(name="LostOwner", closing=frozenset({2})),
        SlotState(name="Loading", load=job(callers=frozenset(), orphaned_at=1.0), worker=1),
        SlotState(name="Loading", load=job(up=True, sent=True), worker=1),
    ],
)
def test_what_is_sound_beside_it_passes(state: SlotState) -> None:
    validate(state)


def test_an_event_that_cannot_happen_tells_how_it_came_to_that() -> None:
    state, event = SlotState(), WorkerUp(worker=3)
    error = IllegalEvent(state, event, ["asked", "loaded"])
    assert str(error) == "WorkerUp in Empty\n  asked\n  loaded"
    assert (error.state, error.event, error.history) == (state, event, ["asked", "loaded"])
    assert str(IllegalEvent(state, event, [])) == "WorkerUp in Empty"
