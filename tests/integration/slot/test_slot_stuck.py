"""A worker that is alive and gets nowhere: its turn ends typed and the others are served; a slow one is left alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from modeld_process import Modeld, write_models, write_script
from planted import PLACES, Planted
from shared.errors import EngineFailed
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

PARAMS = api.Sampling(max_tokens=8, temperature=0.0)
QUICK = {"MODELD_REAPER_SILENCE": "0.3", "MODELD_REAPER_INTERVAL": "0.2", "MODELD_TEXT_SILENCE": "0.6"}


@pytest.fixture
def models(data_root: DataRoot) -> DataRoot:
    write_models(data_root, "a")
    return data_root


@pytest.mark.parametrize("place", ["parser", "tool schema"])
async def test_a_parser_that_never_returns_ends_its_turn_alone(models: DataRoot, tmp_path: Path, place: str) -> None:
    """The one that waits behind it is served after a reload, by the ordinary rules."""
    planted = Planted(tmp_path / "planted", {place: PLACES[place]})
    script = write_script(models.path)
    async with Modeld(models, "scripted", **script, **planted.environ, **QUICK) as modeld:
        async with modeld.client("Zed") as zed, modeld.client("VS Code") as code:
            assert (await zed.turn("a", params=PARAMS).end()).generation == 1
            planted.arm(place, "hang")
            stuck = zed.turn("a", params=PARAMS)
            await eventually(lambda: planted.struck, "it hangs")
            planted.disarm()
            waiting = code.turn("a", params=PARAMS)
            hung = modeld.workers()[0].pid
            with pytest.raises(EngineFailed, match=r"text was not handled within 0[.]6 s, at modeld[.]") as failed:
                await stuck.end()
            assert failed.value.generation == 2
            after = await waiting.end()
            assert (after.finish_reason, after.generation) == ("stop", 3)
            assert [worker.pid for worker in modeld.workers()] != [hung]
        assert "is stuck" in modeld.log()


async def test_an_engine_that_hangs_ends_its_turn(models: DataRoot) -> None:
    hang = {"pieces": ["x "], "hang_after": 0, "when": "hang"}
    script = write_script(models.path, [{"pieces": ["one "]}, hang])
    environ = {**script, **QUICK, "MODELD_ENGINE_SILENCE": "1"}
    async with Modeld(models, "scripted", **environ) as modeld, modeld.client() as client:
        with pytest.raises(EngineFailed, match="showed no progress for 1 s"):
            await client.turn("a", "hang", params=PARAMS).end()
        assert (await client.turn("a", params=PARAMS).end()).generation == 3


async def test_a_slow_engine_is_never_taken_for_a_stuck_one(models: DataRoot) -> None:
    """One step of its prefill takes longer than text may, all of them longer than the engine may be silent."""
    script = write_script(models.path, chunk=100, prefill_token_s=0.008)
    environ = {**script, **QUICK, "MODELD_ENGINE_SILENCE": "1.5"}
    async with Modeld(models, "scripted", **environ) as modeld, modeld.client() as client:
        turn = client.turn("a", "word " * 50, params=PARAMS)
        done = await turn.end()
        assert (done.finish_reason, done.generation) == ("stop", 1)
        assert done.timings.prefill_s > 1.5
    assert "stuck" not in modeld.log()


@pytest.mark.skipif(os.name == "nt", reason="SIGSTOP has no counterpart")
async def test_a_worker_that_was_stopped_meanwhile_is_no_stuck_one(models: DataRoot) -> None:
    """It answers nothing and moves nothing for longer than text may take: that is no evidence."""
    script = write_script(models.path, [{"pieces": ["on "] * 200}], token_s=0.01)
    async with Modeld(models, "scripted", **script, **QUICK) as modeld, modeld.client() as client:
        turn = client.turn("a", params=api.Sampling(max_tokens=500))
        await turn.until(api.TextDelta)
        worker = modeld.workers()[0]
        worker.send_signal(signal.SIGSTOP)
        await anyio.sleep(1.8)  # the time is the matter: thrice the limit of text
        worker.send_signal(signal.SIGCONT)
        assert (await turn.end()).generation == 1
    assert "stuck" not in modeld.log()


@pytest.mark.skipif(os.name == "nt", reason="SIGSTOP has no counterpart")
async def test_a_machine_that_was_frozen_charges_nothing(models: DataRoot) -> None:
    """The daemon and its worker are stopped together, as by a lid that is closed."""
    script = write_script(models.path, chunk=100, prefill_token_s=0.008)
    environ = {**script, **QUICK, "MODELD_ENGINE_SILENCE": "2"}
    async with Modeld(models, "scripted", **environ) as modeld, modeld.client() as client:
        turn = client.turn("a", "word " * 50, params=PARAMS)
        await turn.until(api.Prefix)
        both = [modeld.workers()[0].pid, modeld.pid]
        await anyio.sleep(0.6)  # into the first rounds
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        await anyio.sleep(2.5)  # the time is the matter: more than the engine has
        for pid in both[::-1]:
            os.kill(pid, signal.SIGCONT)
        assert (await turn.end()).finish_reason == "stop"
    assert "stuck" not in modeld.log()
