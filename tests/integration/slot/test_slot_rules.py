"""Rules that people notice: who is asked, what is reported, what files may do meanwhile, how long a turn gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from modeld.host.worker_host import WorkerHost
from modeld.pipe.messages import ToWorker
from modeld.slot import caller
from modeld_process import ENDLESS, Client, Modeld, scripted, write_script
from shared.errors import BackendMismatch, ModeldError, ModelLoadFailed, ModelSwitchRequired
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import InvalidParams
from shared.settings import Settings
from slot_inside import Inside, inside
from tiny_gguf import write_tiny_gguf
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

FOREVER = api.Sampling(max_tokens=10**6, temperature=0.0)
FEW = api.Sampling(max_tokens=4, temperature=0.0)
SHORT = {"pieces": ["x "] * 3, "when": "short"}


# --- sharing -----------------------------------------------------------------------------------


async def test_sessions_of_many_clients_stay_open_and_block_nobody(models: DataRoot) -> None:
    async with (
        scripted(models, SHORT) as modeld,
        modeld.client("Zed") as zed,
        modeld.client("VS Code") as code,
        modeld.client("third") as third,
    ):
        opened = [
            await client.call("session/open", api.OpenParams(model="a", allow_load=True), api.OpenResult)
            for client in (zed, zed, code)
        ]
        assert len({one.handle for one in opened}) == 3
        for client in (third, zed, code):
            assert (await client.turn("a", "short").end()).finish_reason == "stop"
        status = await third.status()
        assert (status.sessions, status.state) == (3, "Ready")
        assert (await third.load("b", allow_switch=True)).active.name == "b", "an open session holds no slot"


async def test_who_uses_a_model_is_informed_also_where_no_switch_was_allowed(models: DataRoot) -> None:
    async with scripted(models, SHORT) as modeld, modeld.client("Zed") as zed, modeld.client("VS Code") as code:
        await zed.turn("a", "short").end()
        with pytest.raises(ModelSwitchRequired) as caught:
            await code.load("b")
        assert caught.value.in_use_by == ["Zed"]
        with pytest.raises(ModelSwitchRequired) as own:
            await zed.load("b")
        assert own.value.in_use_by == []


async def test_a_forced_switch_and_a_cancelled_turn_are_audited_with_who_and_why(
    models: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in write_script(models.path, [ENDLESS], token_s=0.005).items():
        monkeypatch.setenv(name, value)
    zed, code = caller.Client(1, "Zed"), caller.Client(2, "VS Code")
    async with inside(models, Settings()) as modeld:
        await modeld.load("a", zed)
        ends: list[api.TurnResult] = []

        async def run() -> None:
            ends.append(await modeld.turn("a", zed, "hello"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(10.0):
                while modeld.slot.state.name != "Busy":
                    await anyio.sleep(0.005)
            await modeld.load("b", code, allow_switch=True, on_busy="cancel")
        assert (ends[0].finish_reason, ends[0].by) == ("cancelled_by_other", "VS Code")
        assert modeld.records.audited == [
            ("cancelled_by_other", "VS Code", {"holder": "Zed", "operation": "turn", "for": "b"}),
            ("switch", "VS Code", {"from": "a", "to": "b"}),
        ]


async def test_many_clients_cost_the_engine_no_more_than_one(models: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: 32 turns are the same work for the worker, whoever asks."""
    count = 32
    for name, value in write_script(models.path, [SHORT]).items():
        monkeypatch.setenv(name, value)
    hosts: list[WorkerHost] = []
    async with inside(models, Settings(queue_limit=64), started=hosts.append) as modeld:
        await modeld.load("a", caller.Client(0, "loader"))
        (host,) = hosts
        sent: list[str] = []
        send = host._send

        def counting(message: ToWorker) -> None:
            sent.append(type(message).__name__)
            send(message)

        monkeypatch.setattr(host, "_send", counting)

        async def round_of(clients: list[caller.Client]) -> tuple[int, int]:
            sent.clear()
            places = 0

            def emit(event: api.Event) -> None:
                nonlocal places
                places += isinstance(event, api.Queued)

            async with anyio.create_task_group() as tasks:
                for client in clients:
                    tasks.start_soon(one_turn, modeld, client, emit)
            return sum(name not in ("Heartbeat", "Sample") for name in sent), places

        one = await round_of([caller.Client(1, "one")] * count)
        many = await round_of([caller.Client(number, f"client {number}") for number in range(1, count + 1)])
        assert one[0] == many[0] == count
        assert many[1] <= count * (count + 1) // 2 + count, "a place is reported once for each move"


async def one_turn(modeld: Inside, client: caller.Client, emit: Any) -> None:
    assert (await modeld.turn("a", client, "short", emit)).finish_reason == "stop"


# --- stages ------------------------------------------------------------------------------------


async def test_stages_are_seen_though_a_tag_is_cut_between_chunks(models: DataRoot) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'].split('</think>')[-1] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    pieces = ["<", "thi", "nk>", "hm ", "hm ", "</th", "in", "k>", "so ", "it ", "is "]
    async with (
        scripted(models, {"pieces": pieces}, template=template, token_s=0.15) as modeld,
        modeld.client() as client,
        modeld.client("watcher") as watcher,
    ):
        await client.load("a")
        await watcher.call("status/watch", api.WatchParams(), api.Status)
        turn = client.turn("a", params=api.Sampling(max_tokens=50))
        await turn.end(30.0)
        kinds = [type(event).__name__ for event in turn.events]
        assert kinds.index("Thinking") < kinds.index("ReasoningDelta") < kinds.index("Generating")
        assert kinds.index("Generating") < kinds.index("TextDelta")
        assert turn.text.strip() == "so it is"
        await eventually(lambda: watcher.statuses and watcher.statuses[-1].state == "Ready", "the end is pushed")
        stages = [status.busy.stage for status in watcher.statuses if status.busy is not None]
        assert "thinking" in stages
        assert "generating" in stages[stages.index("thinking") :]


# --- files that change under a resident model --------------------------------------------------


async def test_a_file_that_is_replaced_costs_the_resident_model_nothing_and_is_another_identity(
    models: DataRoot,
) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        first = client.turn("a", params=FEW)
        await first.end()
        other = write_tiny_gguf(models.path / "new.gguf", name="a", seed=9, layers=3)
        os.replace(other, models.models / "a.gguf")
        again = client.turn("a", params=FEW)
        assert (await again.end()).generation == 1
        assert again.text == first.text
        await client.call("library/refresh", api.LibraryParams(), api.LibraryResult)
        await until_load(client, "a", "model_switch_required")
        loaded = await client.load("a", allow_switch=True)
        assert loaded.generation == 2
        fresh = client.turn("a", params=FEW)
        await fresh.end()
        assert fresh.text != first.text


async def kind_of_load(client: Client, model: str, **fields: Any) -> str:
    """The kind of the error that a load ends with, "" for none."""
    try:
        await client.load(model, **fields)
    except ModeldError as error:
        return error.kind
    return ""


async def until_load(client: Client, model: str, kind: str, **fields: Any) -> None:
    """Until a load ends so: the library looks at changed files in its own time."""
    with anyio.fail_after(20.0):
        while await kind_of_load(client, model, **fields) != kind:
            await anyio.sleep(0.05)


async def test_a_drive_that_goes_and_comes_back(models: DataRoot, short_tmp: Path) -> None:
    drive = short_tmp / "drive"
    write_tiny_gguf(drive / "c.gguf", name="c", seed=3)
    async with Modeld(models, "llama", MODELD_MODEL_FOLDERS=str(drive)) as modeld, modeld.client() as client:
        await client.turn("c", params=FEW).end()
        drive.rename(short_tmp / "unplugged")
        assert (await client.turn("c", params=FEW).end()).generation == 1, "what is resident stays"
        await client.unload()
        assert await kind_of_load(client, "c") in ("model_load_failed", "model_not_found")
        assert (await client.load("a")).active.name == "a", "and nothing else is broken by it"
        (short_tmp / "unplugged").rename(drive)
        await client.call("library/refresh", api.LibraryParams(), api.LibraryResult)
        await until_load(client, "c", "", allow_switch=True)
        assert (await client.turn("c", params=FEW).end()).finish_reason == "length"


async def test_an_adapter_in_use_is_not_removed(models: DataRoot, tmp_path: Path) -> None:
    outside = write_tiny_gguf(tmp_path / "lora.gguf", name="lora", metadata={"general.type": "adapter"})
    async with scripted(models, SHORT) as modeld, modeld.client() as client:
        pulled = await client.call("library/pull", api.PullParams(source=str(outside)), api.PullResult)
        await client.load("a", config=api.LoadConfig(adapters=[pulled.path]))
        remove = api.RemoveParams(name=pulled.name)
        with pytest.raises(ModeldError) as caught:
            await client.call("library/remove", remove, api.RemoveResult)
        assert caught.value.kind == "model_in_use"
        await client.unload()
        assert (await client.call("library/remove", remove, api.RemoveResult)).freed_bytes > 0


# --- what a load answers -----------------------------------------------------------------------


async def test_a_load_answers_with_what_was_really_used(models: DataRoot) -> None:
    asked = api.LoadConfig(num_ctx=1024, num_batch=128, kv_type="f32", flash_attention=False)
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        active = (await client.load("a", config=asked)).active
        assert (active.num_ctx, active.num_batch, active.kv_type, active.flash_attention) == (1024, 128, "f32", False)
        assert (active.device, active.gpu_layers, active.bos_policy) == ("CPU", 0, "none")
        assert active.runtime_digest
        assert len(active.template_digest) == 64
        status = await client.status()
        assert status.active == active
        assert status.effective_context == 1024
        assert active.reserved_bytes == status.memory.measured_bytes
        assert status.memory.measured_bytes is not None
        assert status.memory.measured_bytes > 0
        assert status.memory.required_bytes is not None


async def test_a_failed_switch_leaves_failed_and_never_the_old_model(models: DataRoot) -> None:
    async with scripted(models, SHORT) as modeld, modeld.client() as client:
        first = await client.load("a")
        write_script(models.path, [SHORT], load_failure="no such tensor")
        with pytest.raises(ModelLoadFailed):
            await client.load("b", allow_switch=True)
        status = await client.until_state("Failed")
        assert (status.active, status.worker_pid) == (None, None)
        assert status.generation > first.generation
        assert status.last_error is not None
        assert status.last_error["data"]["model"] == "b"
        await eventually(lambda: modeld.workers() == [], "no worker is left")
        write_script(models.path, [SHORT])
        assert (await client.turn("a", "short").end()).finish_reason == "stop", "a turn loads again what it needs"


# --- backends ----------------------------------------------------------------------------------


async def test_a_model_of_another_backend_is_a_typed_refusal_that_names_it(data_root: DataRoot) -> None:
    write_tiny_gguf(data_root.models / "g.gguf", name="g", shape="gemma3")
    async with Modeld(data_root, "openvino") as modeld, modeld.client() as client:
        with pytest.raises(BackendMismatch) as caught:
            await client.load("g")
        assert (caught.value.requested, caught.value.serving) == ("llama", "openvino")
        assert "--backend" in caught.value.message
        assert (await client.status()).state == "Empty"
        assert modeld.workers() == []


# --- how long a turn gets ----------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_a_turn_without_a_limit_ends_by_itself_with_length(models: DataRoot) -> None:
    free = api.Sampling(temperature=0.0)
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        await client.load("a", config=api.LoadConfig(num_ctx=256))
        half = await client.turn("a", params=free).end(50.0)
        assert (half.finish_reason, half.usage.generated) == ("length", 128)
        more = await client.turn("a", params=api.Sampling(temperature=0.0, max_tokens=150)).end(50.0)
        assert (more.finish_reason, more.usage.generated) == ("length", 150)
        full = await client.turn("a", params=FOREVER).end(50.0)
        assert full.finish_reason == "context_full"
    async with Modeld(models, "llama", MODELD_TURN_TOKENS="20") as modeld, modeld.client() as client:
        few = await client.turn("a", params=free).end(50.0)
        assert (few.finish_reason, few.usage.generated) == ("length", 20)
    async with Modeld(models, "llama", MODELD_TURN_TOKENS="0") as modeld, modeld.client() as client:
        await client.load("a", config=api.LoadConfig(num_ctx=256))
        assert (await client.turn("a", params=free).end(50.0)).finish_reason == "context_full"


async def test_a_conversation_without_a_message_is_a_wrong_parameter(models: DataRoot) -> None:
    async with scripted(models, SHORT) as modeld, modeld.client() as client:
        await client.load("a")
        for method, params in (
            ("session/turn", api.TurnParams(model="a", messages=[])),
            ("session/warm", api.WarmParams(model="a", messages=[])),
            ("model/count", api.CountParams(model="a", messages=[])),
        ):
            with pytest.raises(InvalidParams) as caught:
                await client.call(method, params, api.Value)
            assert (caught.value.code, caught.value.at) == (-32602, "$.messages")
        assert (await client.status()).state == "Ready"
