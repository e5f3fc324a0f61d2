"""Chunks of a prompt sized by time."""

from __future__ import annotations

import pytest

from modeld.engine.openvino.blocks import BLOCK
from modeld.engine.openvino.chunk_pace import WANTED_SECONDS, ChunkPace
from modeld.slot.operation import MOST_STOPS, stop_limit

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("rate", [2.0, 50.0, 400.0, 5_000.0])
def test_chunks_come_to_take_the_wanted_time_or_are_as_large_or_small_as_they_may_be(rate: float) -> None:
    pace = ChunkPace(256)
    assert pace.chunk == BLOCK, "nothing is known yet"
    for _ in range(5):
        pace.took(pace.chunk, pace.chunk / rate)
    assert pace.chunk % BLOCK == 0
    assert BLOCK <= pace.chunk <= 256
    assert pace.chunk in (BLOCK, 256) or pace.chunk / rate <= WANTED_SECONDS
    assert pace.slow == (rate < 256 / WANTED_SECONDS)


def test_a_chunk_that_took_long_makes_the_next_one_smaller_at_once() -> None:
    pace = ChunkPace(256)
    pace.took(BLOCK, 0.01)
    assert pace.chunk == 256
    pace.took(256, 4.0)
    assert pace.chunk == BLOCK
    pace.took(3, 0.2)
    assert pace.chunk == BLOCK, "the rest of a prompt tells nothing"


def test_a_stop_waits_for_the_step_that_runs_and_never_for_ever() -> None:
    assert stop_limit(2.0, 0.3) == 2.0
    assert stop_limit(2.0, 3.0) == 9.0
    assert stop_limit(2.0, 900.0) == 2.0 * MOST_STOPS
