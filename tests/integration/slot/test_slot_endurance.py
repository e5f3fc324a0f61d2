"""Many rounds: nothing leaks, whoever vanishes and whenever (`tests/soak/soak_slot.py` runs the full counts)."""

from __future__ import annotations

import random

import psutil
import pytest

from killed_clients import STAGES, KilledClients, script
from modeld_process import Modeld, write_script
from shared.paths import DataRoot
from shared.protocol import api
from slot_storm import Storm, environ

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

MIB = 1 << 20


def footprint(modeld: Modeld) -> tuple[int, int, int]:
    """Resident bytes and descriptors of the daemon, and how many workers it has."""
    process = psutil.Process(modeld.pid)
    return process.memory_info().rss, process.num_fds(), len(modeld.workers())


async def test_memory_stays_flat_over_many_turns(models: DataRoot) -> None:
    turns = 200
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


async def test_neither_daemon_nor_worker_grows_by_a_kilobyte_a_turn(models: DataRoot) -> None:
    """As both did when each read asked for far more than came and gave the rest back: holes that were never filled."""
    script = write_script(models.path, [{"pieces": ["x "] * 3}])
    async with Modeld(models, "scripted", **script) as modeld, modeld.client() as client:

        async def some(count: int) -> list[int]:
            for number in range(count):
                await client.turn("a", f"{number} " + "words " * (97 * number % 300)).end()
            return [one.memory_info().rss for one in (psutil.Process(modeld.pid), *modeld.workers())]

        before = await some(150)
        grown = [after - earlier for after, earlier in zip(await some(700), before, strict=True)]
        assert max(grown) <= MIB // 2, grown


async def test_clients_killed_in_any_stage_leave_nothing(models: DataRoot) -> None:
    """Real processes, SIGKILL: queued, loading, in each part of a turn, holding the model, and at any moment."""
    async with Modeld(models, "scripted", **script(models)) as modeld, modeld.client("stays") as stays:
        killed = KilledClients(modeld, stays, random.Random(7).random)
        await killed.settle()
        before = footprint(modeld)
        for _ in range(10):
            for stage in STAGES:
                await killed.round(stage)
        await killed.settle()
        after = footprint(modeld)
        assert after[1:] == before[1:]
        assert after[0] <= before[0] * 1.05 + MIB


async def test_a_storm_of_calls_leaves_the_slot_sound(models: DataRoot) -> None:
    async with Modeld(models, "scripted", **environ(models)) as modeld:
        storm = Storm(modeld, clients=6, calls=150, seed=11)
        await storm.run()
        assert not storm.problems, storm.problems
        assert any(what.endswith("done") for what in storm.outcomes)
