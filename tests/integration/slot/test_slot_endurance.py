"""Many rounds: nothing leaks, whoever vanishes and whenever (`tests/soak/soak_slot.py` runs the full counts)."""

from __future__ import annotations

import random
from typing import Any

import anyio
import psutil
import pytest

from counts import FULL, scaled
from modeld_process import ENDLESS, Modeld, write_models, write_script
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(3000 if FULL else 120)]

FOREVER = api.Sampling(max_tokens=10**6, temperature=0.0)
SHORT: dict[str, Any] = {"pieces": ["x "] * 3, "when": "short"}
MIB = 1 << 20


@pytest.fixture
def models(data_root: DataRoot) -> DataRoot:
    write_models(data_root, "a", "b")
    return data_root


def footprint(modeld: Modeld) -> tuple[int, int, int]:
    """Resident bytes and descriptors of the daemon, and how many workers it has."""
    process = psutil.Process(modeld.pid)
    return process.memory_info().rss, process.num_fds(), len(modeld.workers())


async def test_memory_stays_flat_over_many_turns(models: DataRoot) -> None:
    turns = scaled(2000)
    # one thread: on a loaded machine two of them spin at each other's barriers
    async with Modeld(models, "llama", MODELD_THREADS="1") as modeld, modeld.client() as client:

        async def some(count: int) -> None:
            for number in range(count):
                brief = api.Sampling(max_tokens=2, temperature=0.0)
                await client.turn("a", f"short {number}", params=brief).end()

        await some(100)
        before = footprint(modeld)
        worker = modeld.workers()[0]
        held = worker.memory_info().rss
        await some(turns)
        after = footprint(modeld)
        assert after[0] <= before[0] * 1.05 + MIB, f"{before} -> {after}"
        assert after[1:] == before[1:]
        assert worker.memory_info().rss <= held * 1.05 + 8 * MIB


async def test_clients_that_vanish_at_any_moment_leave_nothing(models: DataRoot) -> None:
    rounds = scaled(100) * 4
    chance = random.Random(7)
    environ = write_script(models.path, [ENDLESS, SHORT], token_s=0.002, prefill_token_s=0.0002)
    async with Modeld(models, "scripted", **environ) as modeld, modeld.client("stays") as stays:
        await stays.turn("a", "short").end()
        before = footprint(modeld)
        for _ in range(rounds):
            async with modeld.client("goes") as goes:
                goes.turn("a", "x" * 200, params=FOREVER)
                await anyio.sleep(chance.random() * 0.1)
                goes.vanish()
            status = await stays.until_state("Ready", seconds=1.0 if FULL else 5.0)
            assert (status.queue, status.busy, status.generation) == ([], None, 1)
        after = footprint(modeld)
        assert after[1:] == before[1:]
        assert after[0] <= before[0] * 1.05 + MIB
        assert (await stays.turn("a", "short").end()).finish_reason == "stop"
