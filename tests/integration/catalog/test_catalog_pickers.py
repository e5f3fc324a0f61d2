"""Real bridges around a real modeld: what every open picker shows while it starts, goes and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from counts import scaled
from picker_world import World
from restart_loop import ENDS, RestartLoop

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(180)]


@pytest.fixture
def world() -> Iterator[World]:
    with World(MODELD_LEASE_TTL="1.0") as made:
        yield made


def test_a_restart_loop_moves_no_picker(world: World) -> None:
    loop = RestartLoop(world)
    tally = loop.run(scaled(100))
    assert sum(tally.gaps.values()) == scaled(100)
    assert set(tally.gaps) == {*ENDS, "restart"}
    assert tally.born == tally.picks == scaled(100) - tally.gaps["restart"]
    assert set(tally.prompts) >= {"refused after a stop", "served when modeld was back", "ended in one retryable line"}
