"""What OpenVINO takes as its memory is used, against what status and the next plan say of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from converted import share
from modeld.memory.probe import host_memory, resident_of
from modeld_process import Client, Modeld
from shared.errors import InsufficientMemory
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [
    pytest.mark.integration,
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.openvino,
    pytest.mark.timeout(300),
]
CONTEXT = 1024
PROMPTS = ("river", "mountain", "garden")
MIB = 1 << 20


async def ask(client: Client, word: str) -> api.TurnResult:
    params = api.Sampling(max_tokens=4, temperature=0.0)
    return await client.turn("smol", f"{word} " * (CONTEXT - 150), params=params).end(120.0)


async def described(client: Client, num_ctx: int) -> api.MemoryPlan:
    params = api.DescribeParams(model="smol", config=api.LoadConfig(num_ctx=num_ctx))
    info = await client.call("model/describe", params, api.ModelInfo)
    assert info.plan is not None
    return info.plan


async def test_status_says_what_three_long_prompts_take_and_the_next_plan_knows_it(
    data_root: DataRoot, smollm2: Path, smollm2_ir: Path
) -> None:
    share(smollm2_ir, data_root.path)
    data_root.models.mkdir(parents=True)
    shutil.copy(smollm2, data_root.models / "smol.gguf")
    async with Modeld(data_root, "openvino") as modeld, modeld.client() as client:
        estimated = await described(client, CONTEXT)
        params = api.LoadParams(model="smol", config=api.LoadConfig(num_ctx=CONTEXT))
        loaded = await client.call("model/load", params, api.LoadResult, 200.0)
        (worker,) = modeld.workers()
        reserved = loaded.active.reserved_bytes or 0
        assert reserved >= (resident_of(worker.pid) or 0), "the conversation's memory is not written yet"
        for word in PROMPTS:
            assert (await ask(client, word)).usage.reused < CONTEXT // 2
            status = await client.status()
            assert status.active is not None
            assert status.memory is not None
            told, resident = status.active.reserved_bytes or 0, resident_of(worker.pid) or 0
            assert told == status.memory.measured_bytes
            assert 0.9 <= resident / told <= 1.1, (word, resident // MIB, told // MIB)
        measured = await described(client, CONTEXT)
        assert measured.source == "measured"
        assert measured.required_bytes >= 0.9 * (resident - 2 * measured.kv_bytes), "further conversations apart"
        assert measured.required_bytes >= reserved * 0.9
        assert 0.5 <= estimated.required_bytes / measured.required_bytes <= 1.4
        longer = await described(client, 4 * CONTEXT)
        assert longer.required_bytes - measured.required_bytes >= longer.kv_bytes - measured.kv_bytes


async def test_a_load_whose_conversation_will_not_fit_is_refused_before_the_close(
    data_root: DataRoot, smollm2: Path, smollm2_ir: Path
) -> None:
    share(smollm2_ir, data_root.path)
    data_root.models.mkdir(parents=True)
    shutil.copy(smollm2, data_root.models / "smol.gguf")
    # what is left holds the weights and a short conversation, and not the long one
    left = 1400 * MIB
    environ = {"MODELD_MEMORY_RESERVE_CAP": "1.0", "MODELD_MEMORY_RESERVE_FLOOR": str(host_memory().free - left)}
    async with Modeld(data_root, "openvino", **environ) as modeld, modeld.client() as client:
        params = api.LoadParams(model="smol", config=api.LoadConfig(num_ctx=512))
        loaded = await client.call("model/load", params, api.LoadResult, 200.0)
        long = api.LoadParams(model="smol", config=api.LoadConfig(num_ctx=131_072), allow_switch=True)
        with pytest.raises(InsufficientMemory):
            await client.call("model/load", long, api.LoadResult, 200.0)
        status = await client.status()
        assert (status.state, status.generation) == ("Ready", loaded.generation)
