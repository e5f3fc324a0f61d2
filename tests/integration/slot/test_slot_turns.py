"""Turns on the one slot: queue, cancel, crash, and clients that vanish, with real processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import pytest

from modeld_process import ENDLESS, Client, Modeld, Turn, is_alive, scripted
from shared.errors import EngineFailed, ModeldError, ModelSwitchRequired, QueueFull, WaitTimeout
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

FOREVER = api.Sampling(max_tokens=10**6, temperature=0.0)
#: Only what hangs takes longer: how soon a slot is free again is measured by the soak and the bench.
FREE_SECONDS = 20.0


def short(pieces: int = 3) -> dict[str, Any]:
    return {"pieces": ["x "] * pieces, "when": "short"}


# --- the queue ---------------------------------------------------------------------------------


async def test_a_waiting_turn_sees_its_place_and_who_is_ahead(models: DataRoot) -> None:
    async with (
        scripted(models, ENDLESS, short()) as modeld,
        modeld.client("holder") as holder,
        modeld.client("next") as following,
        modeld.client("last") as last,
    ):
        running = holder.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        second = following.turn("a", params=FOREVER)
        await second.until(api.Queued)
        third = last.turn("a", "short")
        await third.until(api.Queued)
        assert second.events[-1] == api.Queued(position=1, ahead=["holder"])
        assert third.events[-1] == api.Queued(position=2, ahead=["holder", "next"])
        status = await last.status()
        assert [waiting.client for waiting in status.queue] == ["next", "last"]
        assert status.busy is not None
        assert (status.busy.operation, status.busy.stage, status.busy.holder) == ("turn", "generating", "holder")
        holder.cancel(running)
        await eventually(lambda: api.Queued(position=1, ahead=["next"]) in third.events, "it moves up")
        following.cancel(second)
        await second.end()
        await third.end()


async def test_thirty_two_clients_get_their_turns_fairly(models: DataRoot) -> None:
    count, each = 32, 2
    async with scripted(models, ENDLESS, short(1), environ={"MODELD_QUEUE_LIMIT": "64"}) as modeld:
        finished: list[int] = []
        start = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def run(number: int) -> None:
                async with modeld.client(f"client {number}") as client:
                    await start.wait()
                    turns = [client.turn("a", "short") for _ in range(each)]
                    for turn in turns:
                        assert (await turn.end(50.0)).finish_reason == "stop"
                        finished.append(number)

            for number in range(count):
                tasks.start_soon(run, number)
            async with modeld.client("loader") as loader:
                await loader.load("a")
                while (await loader.status()).clients < count + 1:
                    await anyio.sleep(0.01)
                hold = loader.turn("a", params=FOREVER)  # everybody waits behind this one
                await hold.until(api.TextDelta)
                start.set()
                while len((await loader.status()).queue) < count * each:
                    await anyio.sleep(0.01)
                loader.cancel(hold)
                await hold.end()
        served = dict.fromkeys(range(count), 0)
        for number in finished:
            served[number] += 1
            assert served[number] <= min(served.values()) + 1 + 1, finished  # ends may be noted a step late
        assert set(served.values()) == {each}


async def test_the_queue_is_bounded_and_a_wait_has_a_deadline(models: DataRoot) -> None:
    environ = {"MODELD_QUEUE_LIMIT": "2"}
    async with scripted(models, environ=environ) as modeld, modeld.client("holder") as holder, modeld.client() as other:
        running = holder.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        patient = other.turn("a")
        await patient.until(api.Queued)
        brief = other.turn("a", wait_s=0.2)
        await brief.until(api.Queued)
        with pytest.raises(QueueFull) as full:
            await other.turn("a").end()
        assert full.value.position == 3
        with pytest.raises(WaitTimeout) as late:
            await brief.end()
        assert late.value.waited_s >= 0.2
        assert late.value.position == 2
        other.cancel(patient)
        assert (await patient.end()).finish_reason == "cancelled"
        assert not running.ended.is_set()
        holder.cancel(running)
        await running.end()


# --- cancel ------------------------------------------------------------------------------------


async def reach_queued(modeld: Modeld, client: Client, other: Client) -> Turn:
    running = other.turn("a", params=FOREVER)
    await running.until(api.TextDelta)
    turn = client.turn("a", params=FOREVER)
    await turn.until(api.Queued)
    return turn


async def reach_loading(modeld: Modeld, client: Client, other: Client) -> Turn:
    turn = client.turn("a", "slow load", params=FOREVER)
    await turn.until(api.Loading)
    return turn


async def reach_prefill(modeld: Modeld, client: Client, other: Client) -> Turn:
    turn = client.turn("a", "long " * 700, params=FOREVER)
    await turn.until(api.Prefill)
    return turn


async def reach_decode(modeld: Modeld, client: Client, other: Client) -> Turn:
    turn = client.turn("a", params=FOREVER)
    await turn.until(api.TextDelta)
    return turn


STAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "queued": (reach_queued, {}),
    "loading": (reach_loading, {"load_s": 1.0}),
    "prefill": (reach_prefill, {"prefill_token_s": 0.001}),
    "decode": (reach_decode, {}),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_cancel_in_every_stage_ends_it_and_the_next_turn_works(models: DataRoot, stage: str) -> None:
    reach, script = STAGES[stage]
    async with (
        scripted(models, ENDLESS, short(), **script) as modeld,
        modeld.client("Zed") as client,
        modeld.client("other") as other,
    ):
        turn = await reach(modeld, client, other)
        client.cancel(turn)
        ended = await turn.end(FREE_SECONDS)
        assert (ended.finish_reason, ended.by) == ("cancelled", "")
        if stage == "queued":
            assert (await client.status()).state == "Busy", "nobody else's turn is touched"
            other.vanish()
        elif stage != "loading":
            status = await client.until_state("Ready", seconds=FREE_SECONDS)
            assert status.generation == 1
        assert (await client.turn("a", "short").end()).finish_reason == "stop"


async def test_an_engine_that_does_not_stop_is_killed_and_the_next_turn_reloads(models: DataRoot) -> None:
    hang = {"pieces": ["x "], "hang_after": 0}
    environ = {"MODELD_CANCEL_LIMIT": "0.4"}
    async with scripted(models, hang, short(), environ=environ) as modeld, modeld.client() as client:
        turn = client.turn("a")
        await turn.until(api.Prefill)
        (worker,) = modeld.workers()
        client.cancel(turn)
        ended = await turn.end(5.0)
        assert ended.finish_reason == "cancelled"
        await eventually(lambda: not is_alive(worker), "the worker is killed")
        status = await client.until_state("Empty")
        assert status.generation == 2
        after = await client.turn("a", "short").end()
        assert (after.finish_reason, after.generation) == ("stop", 3)


# --- crash -------------------------------------------------------------------------------------


async def test_a_worker_killed_in_a_turn_is_engine_failed_and_the_next_turn_reloads(models: DataRoot) -> None:
    async with scripted(models, ENDLESS, short()) as modeld, modeld.client() as client:
        turn = client.turn("a", params=FOREVER)
        await turn.until(api.TextDelta)
        (worker,) = modeld.workers()
        worker.kill()
        with pytest.raises(EngineFailed) as caught:
            await turn.end(FREE_SECONDS)
        assert caught.value.generation == 2
        assert "SIGKILL" in caught.value.reason
        status = await client.status()
        assert (status.state, status.active) == ("Failed", None)
        after = await client.turn("a", "short").end()
        assert (after.finish_reason, after.generation) == ("stop", 3)


async def test_a_worker_killed_while_idle_is_noticed_at_once(models: DataRoot) -> None:
    async with scripted(models, short()) as modeld, modeld.client() as client:
        await client.load("a")
        (worker,) = modeld.workers()
        worker.kill()
        status = await client.until_state("Failed", seconds=FREE_SECONDS)
        assert status.last_error is not None
        assert status.last_error["data"]["kind"] == "engine_failed"
        assert (await client.turn("a", "short").end()).finish_reason == "stop"


async def test_the_waiting_turns_of_others_survive_a_crash(models: DataRoot) -> None:
    async with scripted(models, ENDLESS, short()) as modeld, modeld.client() as client, modeld.client("next") as other:
        turn = client.turn("a", params=FOREVER)
        await turn.until(api.TextDelta)
        waiting = other.turn("a", "short")
        await waiting.until(api.Queued)
        modeld.workers()[0].kill()
        with pytest.raises(EngineFailed):
            await turn.end()
        assert (await waiting.end()).finish_reason == "stop"


# --- two models --------------------------------------------------------------------------------


async def test_two_editors_with_two_models_alternate_in_batches(models: DataRoot) -> None:
    turns = 10
    environ = {"MODELD_AFFINITY_BOUND": "0.5", "MODELD_AFFINITY_LOAD_FACTOR": "0"}
    async with (
        scripted(models, short(10), token_s=0.01, environ=environ) as modeld,
        modeld.client("left") as left,
        modeld.client("right") as right,
    ):
        done: list[str] = []

        async def chat(client: Client, model: str) -> None:
            for _ in range(turns):
                end = await client.turn(model, "short", allow_switch=True, consent=True).end(50.0)
                assert end.model == model
                done.append(model)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat, left, "a")
            tasks.start_soon(chat, right, "b")
        switches = modeld.log().count("switching from")
        assert sorted(done) == ["a"] * turns + ["b"] * turns
        assert switches <= 8, f"{switches} switches for {2 * turns} turns"


async def test_a_switch_that_hurts_another_editor_asks_first(models: DataRoot) -> None:
    async with scripted(models, short()) as modeld, modeld.client("Zed") as zed, modeld.client("VS Code") as code:
        await zed.turn("a", "short").end()
        with pytest.raises(ModelSwitchRequired) as caught:
            await code.turn("b", "short", allow_switch=True).end()
        assert (caught.value.active, caught.value.requested, caught.value.in_use_by) == ("a", "b", ["Zed"])
        assert (await code.turn("b", "short", allow_switch=True, consent=True).end()).model == "b"
        # One's own use is no reason to ask.
        assert (await code.turn("a", "short", allow_switch=True).end()).model == "a"


async def test_a_hold_keeps_the_model_through_a_gap(models: DataRoot) -> None:
    async with scripted(models, short()) as modeld, modeld.client("Zed") as zed, modeld.client("VS Code") as code:
        await zed.turn("a", "short").end()
        await zed.call("run/hold", api.HoldParams(model="a", run="r1"), api.Value)
        switch = code.turn("b", "short", allow_switch=True, consent=True)
        await switch.until(api.Queued)
        assert (await zed.turn("a", "short").end()).generation == 1
        assert not switch.ended.is_set()
        await zed.call("run/hold", api.HoldParams(model="a", run="r1", release=True), api.Value)
        assert (await switch.end()).model == "b"


# --- beside turns ------------------------------------------------------------------------------


async def test_warm_and_fill_give_way_to_a_turn(models: DataRoot) -> None:
    async with (
        scripted(models, ENDLESS, short(), prefill_token_s=0.001) as modeld,
        modeld.client() as client,
        modeld.client("other") as other,
    ):
        await client.load("a")
        outcome: list[Any] = []

        async def fill() -> None:
            params = api.FillParams(model="a", prefix="x" * 50, suffix="y", params=FOREVER)
            try:
                outcome.append(await client.call("completion/fill", params, api.FillResult, 20.0))
            except (ModeldError, Exception) as error:
                outcome.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill)
            with anyio.fail_after(5.0):
                while (await other.status()).busy is None:
                    await anyio.sleep(0.005)
            assert (await other.turn("a", "short").end(10.0)).finish_reason == "stop"
        assert len(outcome) == 1


async def test_fill_never_loads_or_switches(models: DataRoot) -> None:
    async with scripted(models, short()) as modeld, modeld.client() as client:
        params = api.FillParams(model="a", prefix="x", suffix="y")
        with pytest.raises(ModeldError) as caught:
            await client.call("completion/fill", params, api.FillResult)
        assert caught.value.kind == "model_not_active"
        await client.load("b")
        with pytest.raises(ModelSwitchRequired):
            await client.call("completion/fill", params, api.FillResult)


async def test_counting_works_beside_a_decode_and_without_a_resident_model(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client, modeld.client("other") as other:
        ask = api.CountParams(model="a", messages=[{"role": "user", "content": "hello"}])
        cold = await other.call("model/count", ask, api.CountResult)
        assert (await other.status()).state == "Empty"
        running = client.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        warm = await other.call("model/count", ask, api.CountResult, seconds=2.0)
        assert warm == cold
        assert (await other.status()).state == "Busy"
        client.cancel(running)
        ended = await running.end()
        assert ended.usage.prefilled + ended.usage.reused == cold.total


async def test_a_reaped_lease_never_touches_a_turn_that_the_engine_works_on(models: DataRoot) -> None:
    """A prefill that says nothing for longer than the silence is alive as long as the engine says so."""
    environ = {"MODELD_REAPER_SILENCE": "0.2", "MODELD_REAPER_INTERVAL": "0.1"}
    async with (
        scripted(models, short(), environ=environ, prefill_token_s=0.002, chunk=4096) as modeld,
        modeld.client() as client,
    ):
        end = await client.turn("a", "short " + "x" * 900).end(20.0)
        assert end.finish_reason == "stop"
        assert "reaped" not in modeld.log()


@pytest.mark.skipif(os.name == "nt", reason="SIGSTOP has no counterpart")
async def test_a_client_that_stops_reading_does_not_stop_the_slot(models: DataRoot) -> None:
    """A suspended editor: its turn ends by itself, others go on, and it is dropped when it lags too far."""
    import subprocess
    import sys

    environ = {"MODELD_STALLED_SECONDS": "0.5", "MODELD_STALLED_BYTES": "20000"}
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[2]);"
        "from modeld_process import *; from shared.paths import DataRoot; from pathlib import Path\n"
        "async def main():\n"
        "    modeld = Modeld(DataRoot(Path(sys.argv[1])))\n"
        "    modeld.view = lambda: survey(modeld.root).living[0]\n"
        "    async with modeld.client('suspended') as client:\n"
        "        turn = client.turn('a', params=api.Sampling(max_tokens=10**6))\n"
        "        await turn.until(api.TextDelta)\n"
        "        print('ready', flush=True)\n"
        "        await turn.end(60)\n"
        "asyncio.run(main())\n"
    )
    flood = {"pieces": ["x" * 8000 + " "], "endless": True}
    async with scripted(models, flood, short(), token_s=0.001, environ=environ) as modeld:
        tests = str(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(models.path), tests], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == b"ready"
            child.send_signal(signal.SIGSTOP)
            async with modeld.client("other") as other:
                assert (await other.turn("a", "short").end(30.0)).finish_reason == "stop"
            assert "suspended stopped reading" in modeld.log()
        finally:
            child.kill()
            child.communicate()
