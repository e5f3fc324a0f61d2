"""The slot's rules with llama.cpp itself in the worker, on tiny real weights."""

from __future__ import annotations

import anyio
import psutil
import pytest

from modeld_process import Modeld, is_alive
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.anyio, pytest.mark.timeout(120)]

FOREVER = api.Sampling(max_tokens=3000, temperature=0.0)
SHORT = api.Sampling(max_tokens=8, temperature=0.0)


async def test_a_cancelled_turn_leaves_the_same_generation_and_the_same_answers(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        first = client.turn("a", "say something", params=SHORT)
        await first.end()
        for _ in range(3):
            turn = client.turn("a", "tell me a story", params=FOREVER)
            await turn.until(api.TextDelta)
            client.cancel(turn)
            ended = await turn.end(5.0)
            assert (ended.finish_reason, ended.session_valid) == ("cancelled", True)
            status = await client.until_state("Ready", seconds=5.0)
            assert status.generation == 1
        again = client.turn("a", "say something", params=SHORT)
        await again.end()
        assert again.text == first.text


async def test_a_client_killed_in_a_turn_frees_the_slot(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client("stays") as stays:
        async with modeld.client("goes") as goes:
            turn = goes.turn("a", params=FOREVER)
            await turn.until(api.TextDelta)
            goes.vanish()
            await stays.until_state("Ready", seconds=5.0)
        assert (await stays.turn("a", params=SHORT).end()).generation == 1


async def test_a_file_that_vanishes_while_resident_costs_nothing_until_it_is_loaded_again(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        await client.load("a")
        (models.models / "a.gguf").unlink()
        assert (await client.turn("a", params=SHORT).end()).finish_reason == "length"
        await client.unload()
        with pytest.raises(Exception, match="a") as caught:
            await client.load("a")
        assert getattr(caught.value, "kind", "") in ("model_load_failed", "model_not_found")


async def test_switching_back_and_forth_leaves_one_worker_and_no_descriptors(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        await client.load("a")
        await client.load("b", allow_switch=True)
        daemon = psutil.Process(modeld.pid)
        before = daemon.num_fds()
        for name in ("a", "b", "a", "b"):
            await client.load(name, allow_switch=True)
        assert len(modeld.workers()) == 1
        assert daemon.num_fds() <= before + 1


async def test_stop_in_a_turn_leaves_no_worker(models: DataRoot) -> None:
    async with Modeld(models, "llama", MODELD_SHUTDOWN_DRAIN="0.1") as modeld:
        async with modeld.client() as client:
            turn = client.turn("a", params=FOREVER)
            await turn.until(api.TextDelta)
            workers = modeld.workers()
            with anyio.fail_after(10.0):
                assert await modeld.end() == 0
            ended = await turn.end()
            assert (ended.finish_reason, ended.by) == ("cancelled_by_other", "modeld, which is stopping")
        await eventually(lambda: not any(is_alive(worker) for worker in workers), "no worker is left", 2.0)
