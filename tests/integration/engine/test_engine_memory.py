"""A worker's memory over many turns of two conversations: a tenth of what tests/soak/soak_engine.py counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_bench import Engines

from alternation import Alternation, growth

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(120)]
TURNS = 100
MIB = 1 << 20


@pytest.mark.parametrize("shape", ["tiny", "tiny_window"])
async def test_memory_stays_flat_and_the_parking_budget_holds(
    engines: Engines, shape: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(shape)
    budget = 1 * MIB
    engine = await engines.load("llama", path, num_ctx=4096, parked_bytes=budget)
    turns = Alternation(engine.host)
    samples = [await turns.turn() for _ in range(TURNS)]
    assert abs(growth(samples)) <= 0.03
    assert max(one.parked_bytes for one in samples) <= budget
    assert max(one.parked_bytes for one in samples) > 0, "two conversations of this size do not fit beside each other"
    going_on = [one for number, one in enumerate(samples) if number % 12 >= 2]
    assert sum(one.prefilled for one in going_on) < 0.5 * sum(one.prefilled + one.reused for one in going_on)
