"""Loading, switching, sharing and rolling back, with a real daemon and real worker processes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from modeld_process import ENDLESS, Client, Modeld, write_script
from shared.errors import (
    ModelBusy,
    ModeldError,
    ModelLoadFailed,
    ModelNotActive,
    ModelNotFound,
    ModelSwitchRequired,
    SlotGenerationStale,
)
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import RequestCancelled

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

MIB = 1 << 20
STOP = api.ShutdownParams(drain_s=0.1)


def scripted(root: DataRoot, *replies: dict[str, Any], environ: dict[str, str] | None = None, **script: Any) -> Modeld:
    return Modeld(root, "scripted", **write_script(root.path, replies, **script), **(environ or {}))


async def test_one_active_model_slot(models: DataRoot) -> None:
    """The invariant by its name: load A, run a turn, switch to B; never two workers hold a model, never A + B."""
    ballast = 256 * MIB
    async with scripted(models, ballast_bytes=ballast, load_s=0.2) as modeld, modeld.client() as client:
        first = await client.load("a")
        assert (await client.turn("a").end()).finish_reason == "stop"
        worker = (await client.status()).worker_pid
        assert worker is not None
        peak = 0
        done = anyio.Event()

        async def watch() -> None:
            nonlocal peak
            while not done.is_set():
                peak = max(peak, sum(_resident(process) for process in modeld.workers()))
                await anyio.sleep(0.002)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            second = await client.load("b", allow_switch=True)
            done.set()
        assert second.active.name == "b"
        assert second.generation == first.generation + 1
        assert not psutil.pid_exists(worker)
        assert len(modeld.workers()) == 1
        assert peak < 2 * ballast, f"peak {peak / MIB:.0f} MiB: both models were resident"
        assert (await client.turn("b").end()).model == "b"


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


async def test_a_model_can_be_activated_used_unloaded_and_replaced_without_a_restart(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        for name in ("a", "b", "a"):
            loaded = await client.load(name)
            assert loaded.loaded
            assert (await client.turn(name).end()).finish_reason == "stop"
            freed = await client.unload()
            assert freed.freed == name
            assert freed.generation > loaded.generation
            assert modeld.workers() == []
        assert (await client.unload()).freed == ""
        assert (await client.status()).pid == modeld.pid


async def test_unloads_beside_and_after_each_other_free_a_model_once(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client, modeld.client("VS Code") as other:
        loaded = await client.load("a")
        results: list[api.UnloadResult] = []

        async def unload(one: Client) -> None:
            results.append(await one.unload(on_busy="wait"))

        async with anyio.create_task_group() as tasks:
            for one in (client, other, client):
                tasks.start_soon(unload, one)
        results.append(await other.unload())
        assert sorted(result.freed for result in results) == ["", "", "", "a"]
        assert {result.generation for result in results} == {loaded.generation + 1}
        status = await client.status()
        assert (status.state, status.generation, modeld.workers()) == ("Empty", loaded.generation + 1, [])


async def test_the_same_identity_is_a_no_op_with_the_same_generation(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client, modeld.client("VS Code") as other:
        first = await client.load("a")
        again = await other.load("a", config=api.LoadConfig(min_ctx=512))
        assert (again.loaded, again.generation) == (False, first.generation)


async def test_another_config_of_the_same_file_needs_a_switch_and_reloads(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        first = await client.load("a")
        wanted = api.LoadConfig(num_ctx=1024)
        with pytest.raises(ModelSwitchRequired):
            await client.load("a", config=wanted)
        second = await client.load("a", config=wanted, allow_switch=True)
        assert (second.active.num_ctx, second.generation) == (1024, first.generation + 1)


async def test_two_clients_racing_for_different_models_have_one_winner_and_one_typed_error(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client("left") as left, modeld.client("right") as right:
        for _ in range(50):  # all 500: tests/soak/soak_slot.py
            outcomes: list[api.LoadResult | ModeldError] = []

            async def race(client: Client, name: str, outcomes: list[Any] = outcomes) -> None:
                try:
                    outcomes.append(await client.load(name))
                except ModeldError as error:
                    outcomes.append(error)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(race, left, "a")
                tasks.start_soon(race, right, "b")
            winners = [one for one in outcomes if isinstance(one, api.LoadResult)]
            losers = [one for one in outcomes if isinstance(one, (ModelBusy, ModelSwitchRequired, SlotGenerationStale))]
            assert (len(winners), len(losers)) == (1, 1)
            assert len(modeld.workers()) == 1
            await left.unload()


async def test_loads_of_one_identity_share_one_load(models: DataRoot) -> None:
    async with scripted(models, load_s=0.3) as modeld, modeld.client("left") as left, modeld.client("right") as right:
        results: list[api.LoadResult] = []

        async def load(client: Client) -> None:
            results.append(await client.load("a"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load, left)
            tasks.start_soon(load, right)
        assert {result.generation for result in results} == {1}
        assert modeld.log().count("loaded a") == 1


async def test_a_load_whose_caller_has_gone_is_rolled_back(models: DataRoot) -> None:
    environ = {"MODELD_LOAD_ROLLBACK": "0.3"}
    async with scripted(models, load_s=30.0, environ=environ) as modeld, modeld.client("stays") as stays:
        async with modeld.client("goes") as goes:
            turn = goes.turn("a")
            await turn.until(api.Loading)
            await stays.until_state("Loading")
        await stays.until_state("Empty", seconds=5.0)
        assert modeld.workers() == []


async def test_a_load_that_others_end_is_a_typed_error_for_its_caller(models: DataRoot) -> None:
    async with scripted(models, load_s=30.0) as modeld, modeld.client("Zed") as zed, modeld.client("VS Code") as code:
        failures: list[str] = []

        async def load() -> None:
            with pytest.raises(RequestCancelled) as caught:
                await zed.load("a")
            failures.append(caught.value.message)

        for stops in (False, True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load)
                await code.until_state("Loading")
                if stops:
                    await code.call("daemon/shutdown", STOP, api.Value)
                else:
                    await code.unload(on_busy="cancel")
        assert failures == [
            "before the load was done it was ended by VS Code",
            "before the load was done it was ended by modeld, which is stopping",
        ]


async def test_a_load_nobody_waits_for_gives_way_at_once(models: DataRoot) -> None:
    environ = {"MODELD_LOAD_ROLLBACK": "60"}
    async with scripted(models, load_s=2.0, environ=environ) as modeld, modeld.client("stays") as stays:
        async with modeld.client("goes") as goes:
            turn = goes.turn("a")
            await turn.until(api.Loading)
        result = await stays.load("b", on_busy="wait", allow_switch=True)
        assert result.active.name == "b"
        assert "loaded a" not in modeld.log()


async def test_a_bad_file_does_not_cost_the_good_model(models: DataRoot) -> None:
    whole = (models.models / "b.gguf").read_bytes()
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        first = await client.load("a")
        for cut in (len(whole) - 1, len(whole) // 2, 100):
            (models.models / "b.gguf").write_bytes(whole[:cut])
            with pytest.raises(ModeldError) as caught:
                await client.load("b", allow_switch=True)
            assert caught.value.kind in ("model_load_failed", "backend_mismatch", "model_not_found")
            status = await client.status()
            assert (status.state, status.generation) == ("Ready", first.generation)


async def test_a_failed_load_leaves_failed_and_the_next_one_works(models: DataRoot) -> None:
    async with scripted(models, load_failure="no such tensor") as modeld, modeld.client() as client:
        with pytest.raises(ModelLoadFailed) as caught:
            await client.load("a")
        assert (caught.value.stage, caught.value.reason) == ("weights", "no such tensor")
        status = await client.until_state("Failed")
        assert status.active is None
        assert status.last_error is not None
        assert status.last_error["data"]["kind"] == "model_load_failed"
        write_script(models.path)
        assert (await client.load("a")).loaded


async def test_a_worker_that_dies_in_a_load_is_a_typed_failure(models: DataRoot) -> None:
    async with scripted(models, load_crash=True) as modeld, modeld.client() as client:
        with pytest.raises(ModelLoadFailed) as caught:
            await client.load("a")
        assert "SIGKILL" in caught.value.reason
        assert (await client.until_state("Failed")).active is None
        assert modeld.workers() == []


async def test_load_and_unload_compare_and_swap(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        with pytest.raises(SlotGenerationStale):
            await client.load("a", expect=api.Expect(generation=7))
        first = await client.load("a", expect=api.Expect(generation=0, model=""))
        with pytest.raises(SlotGenerationStale):
            await client.load("b", allow_switch=True, expect=api.Expect(model="b"))
        with pytest.raises(SlotGenerationStale):
            await client.unload(expect=api.Expect(generation=first.generation + 1))
        assert (await client.unload(expect=api.Expect(generation=first.generation, model="a"))).freed == "a"


async def test_nothing_is_loaded_or_switched_without_permission(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        with pytest.raises(ModelNotActive):
            await client.turn("a", allow_load=False).end()
        with pytest.raises(ModelNotFound):
            await client.turn("nothing of that name").end()
        await client.load("a")
        with pytest.raises(ModelSwitchRequired) as caught:
            await client.turn("b").end()
        assert (caught.value.active, caught.value.requested) == ("a", "b")
        assert (await client.status()).state == "Ready"


async def test_on_busy_fail_wait_and_cancel(models: DataRoot) -> None:
    async with (
        scripted(models, ENDLESS, token_s=0.01) as modeld,
        modeld.client("holder") as holder,
        modeld.client("other") as other,
    ):
        endless = api.Sampling(max_tokens=10**6)
        running = holder.turn("a", params=endless)
        await running.until(api.TextDelta)
        with pytest.raises(ModelBusy) as caught:
            await other.load("b", allow_switch=True)
        assert (caught.value.operation, caught.value.holder) == ("turn", "holder")
        with pytest.raises(ModelBusy):
            await other.unload()
        with pytest.raises(ModeldError) as waited:
            await other.load("b", allow_switch=True, on_busy="wait", wait_s=0.2)
        assert waited.value.kind == "wait_timeout"
        loaded = await other.load("b", allow_switch=True, on_busy="cancel")
        assert loaded.active.name == "b"
        ended = await running.end()
        assert (ended.finish_reason, ended.by) == ("cancelled_by_other", "other")
        assert "other ends the turn of holder" in modeld.log()


async def test_describe_is_never_resident_and_never_waits_for_a_turn(models: DataRoot) -> None:
    async with (
        scripted(models, ENDLESS, token_s=0.01) as modeld,
        modeld.client("holder") as holder,
        modeld.client("other") as other,
    ):
        before = await other.status()
        await other.call("model/describe", api.DescribeParams(model="b"), api.ModelInfo)
        assert (await other.status()).state == before.state == "Empty"
        assert modeld.workers() == []
        running = holder.turn("a", params=api.Sampling(max_tokens=10**6))
        await running.until(api.TextDelta)
        info = await other.call("model/describe", api.DescribeParams(model="b"), api.ModelInfo, seconds=1.0)
        assert info.servable
        holder.cancel(running)
        await running.end()


async def test_auto_does_not_ratchet(models: DataRoot) -> None:
    """describe -> load -> describe -> load gives one answer."""
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        contexts = []
        for _ in range(2):
            info = await client.call("model/describe", api.DescribeParams(model="a"), api.ModelInfo)
            assert info.plan is not None
            loaded = await client.load("a")
            contexts += [info.plan.num_ctx, loaded.active.num_ctx]
        assert set(contexts) == {4096}


async def test_the_generation_goes_on_above_the_last_owners(models: DataRoot) -> None:
    seen = []
    for _ in range(2):
        async with scripted(models) as modeld, modeld.client() as client:
            assert (await client.status()).state == "Empty"
            seen += [(await client.load(name, allow_switch=True)).generation for name in "ab"]
    assert all(later > earlier for earlier, later in itertools.pairwise(seen))


async def test_the_idle_model_is_reaped_though_status_and_describe_are_asked(models: DataRoot) -> None:
    environ = {"MODELD_IDLE_TTL_CONNECTED": "0.6", "MODELD_IDLE_TTL": "0.6"}
    async with scripted(models, environ=environ) as modeld, modeld.client() as client:
        loaded = await client.load("a")
        with anyio.fail_after(5.0):
            while (status := await client.status()).state != "Empty":
                await client.call("model/describe", api.DescribeParams(model="a"), api.ModelInfo)
                await anyio.sleep(0.02)
        assert status.generation == loaded.generation + 1
        assert status.role == "owner", "the model is reaped, the lease is not"
        assert (await client.turn("a").end()).finish_reason == "stop"


async def test_no_backend_reports_status_and_refuses_loads(models: DataRoot) -> None:
    async with Modeld(models, "none") as modeld, modeld.client() as client:
        assert (await client.status()).backend == "none"
        with pytest.raises(ModeldError) as caught:
            await client.load("a")
        assert caught.value.kind == "backend_unavailable"
        assert "pip install" in caught.value.message


async def test_settings_of_the_resident_model_wait_for_its_next_load(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        first = await client.load("a")
        config = api.LoadConfig(num_ctx=2048)
        kept = await client.call("model/configure", api.ConfigureParams(model="a", config=config), api.ConfigureResult)
        assert kept.pending_reload
        assert kept.plan is not None
        assert kept.plan.num_ctx == 2048
        assert (await client.status()).pending_reload
        assert (await client.turn("a").end()).generation == first.generation, "a turn takes what is resident"
        second = await client.load("a", allow_switch=True)
        assert second.active.num_ctx == 2048
        assert not (await client.status()).pending_reload


async def test_a_model_in_use_is_not_removed(models: DataRoot, tmp_path: Path) -> None:
    source = models.models / "a.gguf"
    outside = tmp_path / "pulled.gguf"
    outside.write_bytes(source.read_bytes())
    source.unlink()
    async with scripted(models) as modeld, modeld.client() as client:
        pulled = await client.call("library/pull", api.PullParams(source=str(outside)), api.PullResult)
        await client.load(pulled.name)
        with pytest.raises(ModeldError) as caught:
            await client.call("library/remove", api.RemoveParams(name=pulled.name), api.RemoveResult)
        assert caught.value.kind == "model_in_use"
        await client.unload()
        removed = await client.call("library/remove", api.RemoveParams(name=pulled.name), api.RemoveResult)
        assert removed.freed_bytes > 0


async def test_embedding_never_makes_a_second_model(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        ask = api.EmbedParams(model="a", texts=["one", "two"])
        with pytest.raises(ModelNotActive):
            await client.call("model/embed", ask, api.EmbedResult)
        await client.load("b")
        with pytest.raises(ModelSwitchRequired):
            await client.call("model/embed", ask, api.EmbedResult)
        assert len(modeld.workers()) == 1
        ask = api.EmbedParams(model="b", texts=["one", "two"])
        result = await client.call("model/embed", ask, api.EmbedResult)
        assert [len(vector) for vector in result.vectors] == [64, 64]
        assert result.vectors[0] != result.vectors[1]
        assert len(modeld.workers()) == 1
        assert (await client.status()).state == "Ready"
