"""A turn step by step: one lease over prefix, suffix and decode, bounded pauses, and an end on every path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from converted import share
from modeld_process import ENDLESS, Client, Modeld, is_alive, scripted, write_models, write_script
from shared.errors import (
    ContextOverflow,
    EngineFailed,
    ModelBusy,
    ModeldError,
    SessionClosed,
    SlotGenerationStale,
    StaleFence,
)
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import InvalidParams, RequestCancelled
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

T = TypeVar("T")
GREEDY = api.Sampling(temperature=0.0, max_tokens=8)
FOREVER = api.Sampling(temperature=0.0, max_tokens=10**6)


class Steps:
    """The steps of one client, and the events of each."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.events: list[api.Event] = []
        self.calls: dict[str, int] = {}

    async def call(self, method: str, params: api.Fenced, kind: type[T], seconds: float = 15.0) -> T:
        def on_id(number: int) -> None:
            self.calls[method] = number
            self.client.listen(number, self.events.append)

        fenced = msgspec.structs.replace(params, fence=self.client.hello.instance)
        with anyio.fail_after(seconds):
            return await self.client.peer.request(method, fenced, kind, on_id=on_id)

    async def open(self, model: str = "a", **fields: Any) -> str:
        params = api.OpenParams(model=model, allow_load=True, **fields)
        return (await self.call("session/open", params, api.OpenResult, 50.0)).handle

    async def begin(self, handle: str, **fields: Any) -> str:
        return (await self.call("turn/begin", api.BeginParams(handle=handle, **fields), api.BeginResult)).turn

    async def ensure(self, turn: str, text: str = "hello", params: api.Sampling = GREEDY) -> api.PrefixResult:
        messages = [{"role": "user", "content": text}]
        asked = api.PrefixParams(turn=turn, messages=messages, params=params)
        return await self.call("session/ensure_prefix", asked, api.PrefixResult)

    async def prefill(self, turn: str) -> api.Usage:
        return await self.call("session/prefill_suffix", api.StepParams(turn=turn), api.Usage)

    async def decode(self, turn: str) -> api.TurnResult:
        return await self.call("session/decode", api.StepParams(turn=turn), api.TurnResult)

    async def end(self, turn: str) -> api.EndResult:
        return await self.call("turn/end", api.StepParams(turn=turn), api.EndResult)

    async def explain(self, handle: str) -> api.Status:
        return await self.call("session/explain", api.HandleParams(handle=handle), api.Status, 2.0)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, api.TextDelta))

    def cancel(self, method: str) -> None:
        self.client.peer.cancel(self.calls[method])


@pytest.fixture(params=["scripted", "llama", pytest.param("openvino", marks=pytest.mark.model)])
def engine(request: pytest.FixtureRequest, data_root: DataRoot) -> Callable[..., Modeld]:
    """A modeld on each engine, with a model `a`; OpenVINO reads real weights, since it reads no tiny file."""

    def make(**environ: str) -> Modeld:
        if request.param == "scripted":
            replies = [ENDLESS]
            environ |= write_script(data_root.path, replies, token_s=0.005, prefill_token_s=0.0005)
        if request.param == "openvino":
            weights: Path = request.getfixturevalue("smollm2")
            data_root.models.mkdir(parents=True, exist_ok=True)
            (data_root.models / "a.gguf").symlink_to(weights)
            share(request.getfixturevalue("smollm2_ir"), data_root.path)
        else:
            write_models(data_root, "a")
        return Modeld(data_root, request.param, **environ)

    return make


# --- on every engine ---------------------------------------------------------------------------


@pytest.mark.timeout(180)
async def test_the_steps_give_what_the_turn_at_once_gives(engine: Callable[..., Modeld]) -> None:
    async with engine() as modeld, modeld.client() as client:
        steps = Steps(client)
        handle = await steps.open(config=api.LoadConfig(num_ctx=2048))
        turn = await steps.begin(handle)
        prefix = await steps.ensure(turn, "tell me something")
        assert prefix.reused == 0 < prefix.total
        usage = await steps.prefill(turn)
        assert usage.reused + usage.prefilled == prefix.total
        status = await steps.explain(handle)
        assert status.busy is not None
        assert (status.busy.operation, status.busy.stage, status.state) == ("turn", "between steps", "Busy")
        ended = await steps.decode(turn)
        assert (ended.finish_reason, ended.usage.generated, ended.session_valid) == ("length", 8, True)
        assert ended.usage.prefilled == usage.prefilled
        assert (await steps.end(turn)).session_valid
        kinds = [type(event).__name__ for event in steps.events if not isinstance(event, api.Loading)]
        assert kinds[:2] == ["Prefix", "Prefill"]
        whole = client.turn("a", "tell me something", params=GREEDY)
        result = await whole.end()
        assert whole.text == steps.text
        assert result.usage.reused > 0, "what the steps evaluated is warm"
        assert (await client.status()).generation == 1


@pytest.mark.timeout(180)
async def test_a_cancelled_decode_leaves_the_slot_and_the_next_turn_sound(engine: Callable[..., Modeld]) -> None:
    async with engine() as modeld, modeld.client() as client:
        steps = Steps(client)
        handle = await steps.open(config=api.LoadConfig(num_ctx=2048))
        turn = await steps.begin(handle)
        await steps.ensure(turn, params=FOREVER)
        await steps.prefill(turn)
        results: list[api.TurnResult] = []

        async def decode() -> None:
            results.append(await steps.decode(turn))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(decode)
            await eventually(lambda: steps.text, "some text")
            explained = await steps.explain(handle)  # never waits for the decode
            assert explained.busy is not None
            assert explained.busy.stage == "generating"
            assert not results
            steps.cancel("session/decode")
        assert (results[0].finish_reason, results[0].session_valid) == ("cancelled", True)
        assert (await client.until_state("Ready")).generation == 1
        with pytest.raises(SessionClosed, match="cancelled"):
            await steps.prefill(turn)
        again = await steps.begin(handle)
        await steps.ensure(again)
        await steps.prefill(again)
        assert (await steps.decode(again)).finish_reason == "length"
        await steps.end(again)


# --- order, fences, words ----------------------------------------------------------------------


async def test_a_step_out_of_order_is_named_and_the_turn_goes_on(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        for step in (steps.prefill, steps.decode):
            with pytest.raises(InvalidParams) as caught:
                await step(turn)
            assert caught.value.code == -32602
        await steps.ensure(turn)
        with pytest.raises(InvalidParams):
            await steps.decode(turn)
        await steps.ensure(turn, "other words")  # may be asked for again until the decode
        await steps.prefill(turn)
        assert (await steps.decode(turn)).finish_reason == "length"
        with pytest.raises(InvalidParams):
            await steps.ensure(turn)
        await steps.end(turn)
        with pytest.raises(SessionClosed, match="its client ended it"):
            await steps.end(turn)


async def test_words_that_the_engine_refuses_do_not_end_the_turn(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        with pytest.raises(ContextOverflow):
            await steps.ensure(turn, "x" * 9000)
        with pytest.raises(InvalidParams, match="message"):
            await steps.call("session/ensure_prefix", api.PrefixParams(turn=turn, messages=[]), api.PrefixResult)
        await steps.ensure(turn, "short")
        await steps.prefill(turn)
        assert (await steps.decode(turn)).finish_reason == "length"
        await steps.end(turn)


async def test_turns_act_only_on_their_instance_generation_and_connection(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client, modeld.client("other") as other:
        steps, others = Steps(client), Steps(other)
        handle = await steps.open()
        turn = await steps.begin(handle)
        with pytest.raises(StaleFence):
            await steps.prefill(turn.replace(client.hello.instance, "another"))
        with pytest.raises(SessionClosed):
            await others.ensure(turn)
        with pytest.raises(SessionClosed):
            await others.begin(handle)
        with pytest.raises(SessionClosed):
            await steps.prefill("nonsense")
        await steps.end(turn)
        await client.load("b", allow_switch=True)
        with pytest.raises(SlotGenerationStale):
            await steps.prefill(turn)
        with pytest.raises(SlotGenerationStale):
            await steps.begin(handle)


# --- sharing -----------------------------------------------------------------------------------


async def test_a_turn_by_steps_queues_as_any_other_and_holds_the_slot(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client("steps") as client, modeld.client("other") as other:
        steps = Steps(client)
        handle = await steps.open()
        running = other.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        with pytest.raises(ModelBusy):
            await steps.begin(handle, on_busy="fail")
        async with anyio.create_task_group() as tasks:
            begun: list[str] = []

            async def begin() -> None:
                begun.append(await steps.begin(handle))

            tasks.start_soon(begin)
            await eventually(lambda: api.Queued(position=1, ahead=["other"]) in steps.events, "its place")
            other.cancel(running)
        (turn,) = begun
        waiting = other.turn("a", params=GREEDY)
        await waiting.until(api.Queued)
        assert waiting.events[0] == api.Queued(position=1, ahead=["steps"])
        await steps.ensure(turn)
        assert not waiting.ended.is_set()
        await steps.end(turn)
        assert (await waiting.end()).finish_reason == "length"


async def test_a_begin_that_waits_can_be_cancelled(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client("steps") as client, modeld.client("other") as other:
        steps = Steps(client)
        handle = await steps.open()
        running = other.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        async with anyio.create_task_group() as tasks:

            async def begin() -> None:
                with pytest.raises(RequestCancelled):
                    await steps.begin(handle)

            tasks.start_soon(begin)
            await eventually(lambda: api.Queued(position=1, ahead=["other"]) in steps.events, "its place")
            steps.cancel("turn/begin")
        assert (await other.status()).queue == []
        other.cancel(running)
        await running.end()


async def test_a_pause_between_steps_is_bounded(models: DataRoot) -> None:
    async with (
        scripted(models, environ={"MODELD_STEP_GAP": "0.3"}) as modeld,
        modeld.client("steps") as client,
        modeld.client("other") as other,
    ):
        steps = Steps(client)
        handle = await steps.open()
        turn = await steps.begin(handle)
        await steps.ensure(turn)
        waiting = other.turn("a", params=GREEDY)
        assert (await waiting.end()).finish_reason == "length", "the slot came free by itself"
        with pytest.raises(SessionClosed, match=r"within 0\.3 s"):
            await steps.prefill(turn)
        again = await steps.begin(handle)  # the session outlives its turn
        await steps.end(again)


async def test_a_step_that_takes_longer_than_the_pause_is_no_pause(models: DataRoot) -> None:
    async with (
        scripted(models, environ={"MODELD_STEP_GAP": "0.3"}, prefill_token_s=0.005) as modeld,
        modeld.client() as client,
    ):
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        await steps.ensure(turn, "x" * 150)
        await steps.prefill(turn)
        assert (await steps.decode(turn)).finish_reason == "length"
        await steps.end(turn)


async def test_another_client_that_cancels_ends_it_between_steps_and_in_one(models: DataRoot) -> None:
    async with (
        scripted(models, prefill_token_s=0.01) as modeld,
        modeld.client("steps") as client,
        modeld.client("other") as other,
    ):
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        assert (await other.load("b", allow_switch=True, on_busy="cancel")).active.name == "b"
        with pytest.raises(SlotGenerationStale):
            await steps.ensure(turn)
        turn = await steps.begin(await steps.open("b"))
        await steps.ensure(turn, "x" * 800)
        async with anyio.create_task_group() as tasks:

            async def prefill() -> None:
                with pytest.raises(SessionClosed, match="ended by other"):
                    await steps.prefill(turn)

            tasks.start_soon(prefill)
            with anyio.fail_after(5.0):
                while (busy := (await other.status()).busy) is None or busy.stage != "prefill":
                    await anyio.sleep(0.005)
            assert (await other.load("a", allow_switch=True, on_busy="cancel")).active.name == "a"


async def test_closing_the_session_ends_its_turn(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        steps = Steps(client)
        handle = await steps.open()
        turn = await steps.begin(handle)
        await steps.call("session/close", api.HandleParams(handle=handle), api.Value)
        await client.until_state("Ready")
        with pytest.raises(SessionClosed, match="its session was closed"):
            await steps.ensure(turn)


# --- loss --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["begun", "prefix", "prefill", "decode"])
async def test_a_client_that_vanishes_between_or_in_steps_frees_the_slot(models: DataRoot, stage: str) -> None:
    async with scripted(models, prefill_token_s=0.0005) as modeld, modeld.client("stays") as stays:
        async with modeld.client("goes") as goes:
            steps = Steps(goes)
            turn = await steps.begin(await steps.open())
            if stage != "begun":
                await steps.ensure(turn, params=FOREVER)
            if stage in ("prefill", "decode"):
                await steps.prefill(turn)
            if stage == "decode":
                goes.tasks.start_soon(_decode_until_gone, steps, turn)
                await eventually(lambda: steps.text, "some text")
            goes.vanish()
            status = await stays.until_state("Ready", seconds=5.0)
            assert (status.generation, status.queue) == (1, [])
        assert (await stays.turn("a", params=GREEDY).end()).finish_reason == "length"
        assert len(modeld.workers()) == 1


async def _decode_until_gone(steps: Steps, turn: str) -> None:
    with pytest.raises(Exception, match="gone"):
        await steps.decode(turn)


@pytest.mark.parametrize("stage", ["between", "decode"])
async def test_a_worker_that_dies_ends_the_turn_with_a_typed_error(models: DataRoot, stage: str) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        await steps.ensure(turn, params=FOREVER)
        await steps.prefill(turn)
        (worker,) = modeld.workers()
        if stage == "between":
            worker.kill()
            await client.until_state("Failed")
            with pytest.raises(SlotGenerationStale):
                await steps.decode(turn)
        else:
            async with anyio.create_task_group() as tasks:

                async def decode() -> None:
                    with pytest.raises(EngineFailed) as caught:
                        await steps.decode(turn)
                    assert caught.value.generation == 2

                tasks.start_soon(decode)
                await eventually(lambda: steps.text, "some text")
                worker.kill()
        await eventually(lambda: not is_alive(worker), "the worker is gone")
        assert (await client.turn("a", params=GREEDY).end()).generation == 3


async def test_a_stop_ends_a_turn_between_its_steps(models: DataRoot) -> None:
    async with scripted(models, environ={"MODELD_SHUTDOWN_DRAIN": "0.1"}) as modeld, modeld.client() as client:
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        await steps.ensure(turn)
        with anyio.fail_after(10.0):
            assert await modeld.end() == 0
        assert modeld.workers() == []


async def test_an_engine_that_hangs_in_a_step_is_killed(models: DataRoot) -> None:
    hang = {"pieces": ["x "], "hang_after": 0}
    async with scripted(models, hang, environ={"MODELD_CANCEL_LIMIT": "0.4"}) as modeld, modeld.client() as client:
        steps = Steps(client)
        turn = await steps.begin(await steps.open())
        await steps.ensure(turn)
        await steps.prefill(turn)
        (worker,) = modeld.workers()
        async with anyio.create_task_group() as tasks:

            async def decode() -> None:
                with pytest.raises(ModeldError) as caught:
                    await steps.decode(turn)
                assert caught.value.kind in ("engine_failed", "session_closed")

            tasks.start_soon(decode)
            with anyio.fail_after(5.0):
                while (busy := (await client.status()).busy) is None or busy.stage == "between steps":
                    await anyio.sleep(0.005)
            steps.cancel("session/decode")
        await eventually(lambda: not is_alive(worker), "the worker is killed")
        assert (await client.until_state("Empty")).generation == 2
