"""Many rounds: nothing leaks, whoever vanishes and whenever (`make soak` runs the full counts)."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import anyio
import psutil
import pytest

from counts import FULL, scaled
from modeld_process import ENDLESS, Client, Modeld, write_models, write_script
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


@pytest.mark.skipif(not FULL, reason="a ratio of times: measured in the soak, on a quiet machine")
async def test_many_clients_get_as_much_done_as_one(models: DataRoot) -> None:
    """32 clients with a turn each against one client with 32, interleaved; the ratio of the medians."""
    count = 32
    environ = write_script(models.path, [{"pieces": ["x "] * 40}], token_s=0.001)
    async with Modeld(models, "scripted", **environ, MODELD_QUEUE_LIMIT="64") as modeld:
        async with anyio.create_task_group() as tasks:
            clients: list[Client] = []
            done = anyio.Event()

            async def connect() -> None:
                async with modeld.client() as client:
                    clients.append(client)
                    await done.wait()

            for _ in range(count):
                tasks.start_soon(connect)
            while len(clients) < count:
                await anyio.sleep(0.01)
            await clients[0].load("a")
            one: list[float] = []
            many: list[float] = []
            for _ in range(10):
                for callers, times in (([clients[0]] * count, one), (clients, many)):
                    began = time.monotonic()
                    turns = [client.turn("a", params=api.Sampling(max_tokens=50)) for client in callers]
                    for turn in turns:
                        await turn.end(60.0)
                    times.append(time.monotonic() - began)
            done.set()
        ratio = statistics.median(many) / statistics.median(one)
        assert ratio <= 1.05, f"{ratio:.3f}: one {one}, many {many}"
