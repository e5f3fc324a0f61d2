"""Memory around a load and around turns: real processes that eat it, and devices that only say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from modeld.memory.policy import DeviceMemory
from modeld.memory.probe import host_memory
from modeld.slot.caller import Client
from modeld.slot.describe import describe
from modeld_process import Modeld, write_script
from shared.errors import InsufficientMemory, UnsupportedFeature
from shared.paths import DataRoot
from shared.protocol import api
from shared.settings import Settings
from slot_inside import inside
from tiny_gguf import write_tiny_adapter
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

MIB = 1 << 20
GIB = 1 << 30
FEW = api.Sampling(max_tokens=4, temperature=0.0)


Eater = Callable[[int], Callable[[], None]]
#: Between what is free and the reserve. The other half of the suite takes and gives back some hundred megabytes.
LEFT = 1200 * MIB
#: More than this, and it was not the test that moved the free memory.
MOVED = 400 * MIB
TRIES = 4


async def while_nobody_else_moves_memory(body: Callable[[], Awaitable[None]]) -> None:
    """Free memory is the machine's: where other processes moved it under the test, the test starts over."""
    for attempt in range(1, TRIES + 1):
        before = host_memory().free
        try:
            await body()
        except (Exception, BaseExceptionGroup, pytest.fail.Exception):
            moved = abs(host_memory().free - before)
            if attempt == TRIES or moved < MOVED:
                raise
            print(f"free memory moved by {moved / MIB:.0f} MiB: once more")
        else:
            return


def keeping(left: int) -> dict[str, str]:
    """A reserve that leaves only `left` bytes of what is free now."""
    return {"MODELD_MEMORY_RESERVE_CAP": "1.0", "MODELD_MEMORY_RESERVE_FLOOR": str(host_memory().free - left)}


@contextmanager
def eaten(eater: Eater, environ: dict[str, str]) -> Iterator[Callable[[], None]]:
    """Other processes hold memory until less than the reserve is free; what is given gives it back before the end."""
    reserve = int(environ["MODELD_MEMORY_RESERVE_FLOOR"])
    meals: list[Callable[[], None]] = []

    def give_back() -> None:
        while meals:
            meals.pop()()

    try:
        while len(meals) < 5 and (left := host_memory().free - reserve + 200 * MIB) > 0:
            meals.append(eater(left + 200 * MIB))
        yield give_back
    finally:
        give_back()


async def test_memory_that_another_process_took_between_describe_and_load_is_seen(
    models: DataRoot, eater: Eater
) -> None:
    async def body() -> None:
        environ = keeping(LEFT)
        async with Modeld(models, "llama", **environ) as modeld, modeld.client() as client:
            info = await client.call("model/describe", api.DescribeParams(model="a"), api.ModelInfo)
            assert info.plan is not None
            assert info.plan.required_bytes + info.plan.reserve_bytes < info.plan.free_bytes
            with eaten(eater, environ) as give_back:
                with pytest.raises(InsufficientMemory) as caught:
                    await client.load("a")
                error = caught.value
                assert error.required_bytes + error.reserve_bytes > error.free_bytes
                assert error.device == "CPU"
                assert (await client.status()).state in ("Empty", "Failed")
                give_back()
                assert (await client.load("a")).loaded, "and when it is given back, the load works"

    await while_nobody_else_moves_memory(body)


async def test_a_device_that_fills_up_between_describe_and_load_is_seen_and_the_refusal_says_what_would_fit(
    models: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rules on a device that this machine does not have."""
    for name, value in write_script(models.path).items():
        monkeypatch.setenv(name, value)
    free = 8 * GIB

    def accelerator() -> DeviceMemory:
        return DeviceMemory(device="GPU 0", total=8 * GIB, free=free)

    zed = Client(1, "Zed")
    async with inside(models, Settings(), read_memory=accelerator) as modeld:
        info = await describe(modeld.slot, api.DescribeParams(model="a"))
        assert info.plan is not None
        assert (info.plan.device, info.plan.num_ctx, info.plan.source) == ("GPU 0", 4096, "header")
        reserve = info.plan.reserve_bytes
        free = reserve + info.plan.required_bytes - info.plan.kv_bytes // 2
        with pytest.raises(InsufficientMemory) as caught:
            await modeld.load("a", zed)
        refused = caught.value
        assert (refused.device, refused.free_bytes, refused.reserve_bytes) == ("GPU 0", free, reserve)
        assert 0 < refused.fits < 4096
        with pytest.raises(InsufficientMemory):
            await modeld.load("a", zed, config=api.LoadConfig(num_ctx=4096))
        fitting = await modeld.load("a", zed, config=api.LoadConfig(num_ctx=refused.fits))
        assert fitting.active.num_ctx == refused.fits
        # A switch counts what the old model gives back; a device that is full all the same refuses it,
        # before anything was closed.
        free = 0
        with pytest.raises(InsufficientMemory):
            await modeld.load("b", zed, allow_switch=True)
        active = modeld.slot.loads.active()
        assert active is not None
        assert (active.name, modeld.slot.state.name) == ("a", "Ready")


async def test_a_plan_comes_from_the_engine_and_after_a_load_from_what_was_measured(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:

        async def plan() -> api.MemoryPlan:
            info = await client.call("model/describe", api.DescribeParams(model="a"), api.ModelInfo)
            assert info.plan is not None
            return info.plan

        before = await plan()
        assert (before.source, before.estimate) == ("engine", True)
        layers, kv_width, cells = 2, 32, 4096 + 1024  # and the cells kept for fill-in-the-middle
        assert before.kv_bytes == layers * 2 * kv_width * 2 * cells
        assert 0 < before.weights_bytes <= (models.models / "a.gguf").stat().st_size
        await client.load("a")
        await client.unload()
        after = await plan()
        assert (after.source, after.estimate) == ("measured", False)
        assert (after.kv_bytes, after.num_ctx) == (before.kv_bytes, before.num_ctx)
        assert after.required_bytes == after.weights_bytes + after.kv_bytes + after.compute_bytes
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        again = await plan()
        assert again.source == "measured", "the next modeld remembers"
        assert again.estimate, "until it knows that the engine is the same"


@pytest.mark.model
@pytest.mark.timeout(120)
@pytest.mark.parametrize("weights", ["smollm2", "gemma3"])
async def test_what_was_planned_is_what_a_real_model_takes(
    data_root: DataRoot, weights: str, request: pytest.FixtureRequest
) -> None:
    """Plain attention, and windows: the plan before any load is within a quarter of what the load then takes."""
    data_root.models.mkdir(parents=True, exist_ok=True)
    (data_root.models / "real.gguf").symlink_to(request.getfixturevalue(weights))
    async with Modeld(data_root, "llama") as modeld, modeld.client() as client:
        config = api.LoadConfig(num_ctx=4096)
        info = await client.call("model/describe", api.DescribeParams(model="real", config=config), api.ModelInfo, 30.0)
        assert info.plan is not None
        assert info.plan.source == "engine"
        loaded = await client.load("real", config=config)
        assert loaded.active.reserved_bytes is not None
        assert 0.75 <= info.plan.required_bytes / loaded.active.reserved_bytes <= 1.25


async def test_an_adapter_counts_and_one_that_is_not_there_is_named(models: DataRoot) -> None:
    adapter = write_tiny_adapter(models.path / "adapter.gguf")
    async with Modeld(models, "llama") as modeld, modeld.client() as client:

        async def plan(*adapters: str) -> api.ModelInfo:
            params = api.DescribeParams(model="a", config=api.LoadConfig(adapters=list(adapters)))
            return await client.call("model/describe", params, api.ModelInfo)

        info = await plan(str(adapter))
        assert info.plan is not None
        assert info.plan.adapters_bytes == adapter.stat().st_size
        missing = await plan("/not/there.gguf")
        assert missing.plan is None
        assert any("/not/there.gguf" in warning for warning in missing.warnings)
        with pytest.raises(UnsupportedFeature):
            await client.load("a", config=api.LoadConfig(adapters=["/not/there.gguf"]))
        with pytest.raises(UnsupportedFeature, match="give the whole path"):
            await client.load("a", config=api.LoadConfig(adapters=["adapter.gguf"]))
        assert (await client.status()).state == "Empty"


# --- pressure ----------------------------------------------------------------------------------


def about(subject: str) -> str:
    return f"{subject}: " + "the river runs through the valley " * 20


async def test_parked_conversations_are_dropped_at_a_turns_border_when_memory_is_short(
    models: DataRoot, eater: Eater
) -> None:
    async def body() -> None:
        environ = keeping(LEFT)
        async with Modeld(models, "llama", **environ) as modeld, modeld.client() as client:

            async def turn(subject: str) -> api.Usage:
                return (await client.turn("a", about(subject), params=FEW).end()).usage

            for subject in ("rivers", "hills", "mills"):
                await turn(subject)
            back = await turn("rivers")
            assert back.reused > back.prefilled, "it was parked and came back"
            assert not (await client.status()).memory.pressure
            with eaten(eater, environ) as give_back:
                assert not (await client.status()).memory.pressure, "said at a turn's border, not before"
                await turn("hills")
                pressed = await client.status()
                assert pressed.memory.pressure
                assert pressed.memory.free_bytes is not None
                assert pressed.memory.reserve_bytes is not None
                assert pressed.memory.free_bytes < pressed.memory.reserve_bytes
                assert (pressed.state, pressed.generation) == ("Ready", 1), "the model itself is not touched"
                assert "parked conversations were dropped" in modeld.log()
                lost = await turn("rivers")
                assert lost.reused < lost.prefilled, "what was parked is gone"
                give_back()
                await turn("mills")
                assert not (await client.status()).memory.pressure
                kept = await turn("rivers")
                assert kept.reused > kept.prefilled, "and parking works again"

    await while_nobody_else_moves_memory(body)


async def test_pressure_is_seen_in_a_watched_status_and_reaps_the_idle_model_sooner(
    models: DataRoot, eater: Eater
) -> None:
    async def body() -> None:
        environ = {"MODELD_IDLE_TTL_CONNECTED": "600", "MODELD_IDLE_TTL": "0.5", **keeping(LEFT)}
        async with Modeld(models, "llama", **environ) as modeld, modeld.client() as client:
            await client.call("status/watch", api.WatchParams(), api.Status)
            await client.turn("a", params=FEW).end()
            with eaten(eater, environ):
                await client.turn("a", params=FEW).end()
                await eventually(lambda: any(each.memory.pressure for each in client.statuses), "pressure is pushed")
                status = await client.until_state("Empty")
            assert not status.memory.pressure, "it is said of a model; there is none"
            assert "unloaded a: idle" in modeld.log()

    await while_nobody_else_moves_memory(body)
