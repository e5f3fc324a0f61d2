"""No interleaving of contenders gives two owners, and the check would notice if one did."""

from __future__ import annotations

import random

import msgspec
import pytest

from lease_model import Bounds, Model, Rules, acting, explore
from shared.lease import policy
from shared.lease.policy import Mark, Sighting, Standing, Tenure
from shared.lease.record import Identity

pytestmark = pytest.mark.unit

TWO = Bounds(processes=2, epochs=2, whole_looks=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(TWO, id="two contenders, one crash"),
        pytest.param(Bounds(processes=2, epochs=2, crashes=0), id="a pause between listing and reading"),
        pytest.param(Bounds(processes=3, epochs=2, renewals=0, whole_looks=True), id="three contenders, one crash"),
        pytest.param(
            Bounds(processes=2, epochs=3, crashes=0, renewals=0, floors=(0, 1), whole_looks=True),
            id="contenders that know different floors",
        ),
        pytest.param(
            Bounds(processes=2, epochs=2, crashes=0, deeds=1, releases=False, whole_looks=True, begun=True),
            id="records deleted or replaced under an owner",
        ),
    ],
)
def test_no_interleaving_gives_two_owners(bounds: Bounds) -> None:
    states, story = explore(Model(bounds), most=300_000)
    assert story is None, "\n".join(story)
    assert states > 1000


@pytest.mark.timeout(120)
def test_long_random_walks_of_three_contenders_give_one_owner_at_most() -> None:
    model = Model(Bounds(processes=3, epochs=7, crashes=2, renewals=3))
    owners = 0
    for seed in range(150):
        chance = random.Random(seed)
        state, reported = model.start(), []
        for _ in range(250):
            tick, *moves = model.steps(state)
            live = [move for move in moves if not move[0].endswith("crash")]
            choice = moves if chance.random() < 0.02 else live
            label, state = chance.choice(choice) if choice and chance.random() < 0.8 else tick
            reported.append(label)
            assert len(acting(state)) <= 1, f"seed {seed}: {reported}"
        owners += max((epoch for epoch, _ in state.files), default=0)
    assert owners > 300  # the walks do get somewhere


def _unmoved_is_enough(mine: int, epochs: list[int], judged: Mark | None, now_seen: Mark | None) -> bool:
    return policy.confirmed(mine, epochs, judged, judged)


def _highest_is_enough(mine: int, epochs: list[int], judged: Mark | None, now_seen: Mark | None) -> bool:
    return max(epochs) == mine and judged == now_seen


def _no_second_listing(mine: int, epochs: list[int], judged: Mark | None, now_seen: Mark | None) -> bool:
    return True


def _from_the_end_of_the_write(tenure: Tenure, started: float, finished: float, *, higher: bool) -> Tenure:
    return policy.wrote(tenure, finished, finished, higher=higher)


def _blind_to_successors(tenure: Tenure, started: float, finished: float, *, higher: bool) -> Tenure:
    return policy.wrote(tenure, started, finished, higher=False)


def _without_margin(
    sighting: Sighting | None, unmoved: float, me: Identity, liveness: policy.Liveness, usual: float
) -> Standing:
    return policy.judge(sighting, unmoved + 3.0, me, liveness, usual)


def _claims_give_short_cuts(
    sighting: Sighting | None, unmoved: float, me: Identity, liveness: policy.Liveness, usual: float
) -> Standing:
    if sighting is not None and sighting.record is not None and sighting.record.sequence == policy.CLAIMED:
        record = msgspec.structs.replace(sighting.record, sequence=1)
        sighting = msgspec.structs.replace(sighting, record=record)
    return policy.judge(sighting, unmoved, me, liveness, usual)


def _no_copy(copy: Sighting | None, found: Sighting | None) -> bool:
    return False


#: What one deed can do to an owner and one that comes.
DEED = Bounds(processes=2, epochs=3, crashes=0, renewals=2, deeds=1, releases=False, whole_looks=True, begun=True)
#: All that three can do to an owner in three epochs; the soak run goes through it to the end.
THREE = Bounds(processes=3, epochs=3, crashes=0, keep=4, releases=False, whole_looks=True, begun=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rules", "bounds"),
    [
        pytest.param(Rules(confirmed=_unmoved_is_enough), TWO, id="a thawed owner is not noticed"),
        pytest.param(Rules(confirmed=_no_second_listing), msgspec.structs.replace(TWO, floors=(0, 1)), id="no listing"),
        pytest.param(
            Rules(confirmed=_highest_is_enough), msgspec.structs.replace(TWO, floors=(0, 1)), id="highest is enough"
        ),
        pytest.param(Rules(wrote=_from_the_end_of_the_write), TWO, id="validity from the end of the write"),
        pytest.param(Rules(wrote=_blind_to_successors), TWO, id="a renewal that does not list"),
        pytest.param(Rules(judge=_without_margin), TWO, id="a contender in a hurry"),
        pytest.param(Rules(compares=False), DEED, id="an owner that does not look at its own record"),
        pytest.param(Rules(contradicts=_no_copy), DEED, id="no copy outside"),
        pytest.param(Rules(judge=_claims_give_short_cuts), THREE, id="a withdrawn claim counts as a release"),
    ],
)
def test_the_check_finds_the_fault_in_a_weaker_protocol(rules: Rules, bounds: Bounds) -> None:
    _, story = explore(Model(bounds, rules), most=300_000)
    assert story is not None
