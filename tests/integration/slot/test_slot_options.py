"""Every load option on both engines: used or refused with what is allowed; and what cannot load costs no model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from counts import FULL
from modeld_process import Client, Modeld
from shared.errors import InsufficientMemory, ModeldError, ModelLoadFailed, UnsupportedFeature
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import InvalidParams
from tiny_gguf import write_tiny_adapter, write_tiny_gguf
from unloadable import write_adapters, write_unloadable

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(240)]
ENGINES = [
    pytest.param("llama", marks=pytest.mark.llama),
    pytest.param("openvino", marks=pytest.mark.openvino),
]


class Engine(NamedTuple):
    """A daemon with a resident model, and whose it is."""

    backend: str
    root: DataRoot
    client: Client

    async def load(self, model: str = "good", **config: Any) -> api.LoadResult:
        """Load with these options, in place of what is resident."""
        return await self.client.load(model, config=api.LoadConfig(**config), allow_switch=True)


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, data_root: DataRoot) -> AsyncIterator[Engine]:
    """Heads of 32 numbers: quantised KV memory wants that."""
    write_tiny_gguf(data_root.models / "good.gguf", name="good", width=128, context=2048, half=True, pre="default")
    async with Modeld(data_root, request.param, MODELD_TEMPLATE_DEADLINE="0.5") as modeld, modeld.client() as client:
        yield Engine(request.param, data_root, client)


#: What each engine takes, all at once. Another value of each follows.
USED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (
        {
            "num_ctx": 1000,
            "min_ctx": 700,
            "num_batch": 100,
            "gpu_layers": 0,
            "device": "CPU",
            "flash_attention": True,
            "kv_type": "q8_0",
            "tensor_split": [],
        },
        {"min_ctx": 1500, "num_batch": 1, "flash_attention": False, "kv_type": "f32"},
    ),
    "openvino": (
        {
            "num_ctx": 1000,
            "min_ctx": 700,
            "num_batch": 64,
            "gpu_layers": 0,
            "device": "CPU",
            "flash_attention": True,
            "kv_type": "u8",
            "tensor_split": [],
        },
        {"min_ctx": 1500, "num_batch": 32, "kv_type": "f32"},
    ),
}
#: What no engine or not this one takes, and a word of what the refusal says.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"device": "CUDA0"}, "found: CPU"),
    ({"device": "nonsense"}, "found: CPU"),
    ({"gpu_layers": 5}, "gpu_layers"),
    ({"gpu_layers": -1}, "gpu_layers"),
    ({"num_batch": 4096}, "num_batch 4096 (1 to the context, 2048)"),
    ({"num_ctx": 512, "num_batch": 1024}, "num_batch 1024 (1 to the context, 512)"),
    ({"num_ctx": 512, "min_ctx": 1024}, "min_ctx 1024"),
    ({"tensor_split": [1.0] * 40}, "tensor_split"),
    ({"kv_type": "q3_k"}, "KV type q3_k"),
]
OF_ONE: dict[str, list[tuple[dict[str, Any], str]]] = {
    "llama": [({"kv_type": "u8"}, "here: f32, f16"), ({"kv_type": "q8_0", "flash_attention": False}, "flash_attn")],
    "openvino": [({"kv_type": "q8_0"}, "u8"), ({"num_batch": 100}, "multiple of 32"), ({"flash_attention": False}, "")],
}
#: Refused as a wrong parameter, with its range, before anything is looked at.
WRONG: list[dict[str, Any]] = [
    {"num_ctx": 0},
    {"num_ctx": 2**31},
    {"min_ctx": -1},
    {"num_batch": 2**40},
    {"gpu_layers": -2},
]


def test_every_option_is_in_the_suite() -> None:
    for backend, (used, _) in USED.items():
        untried = set(api.LoadConfig.__struct_fields__) - set(used)
        assert untried == {"adapters"}, f"{backend}: tried by itself, since one engine has none"


async def test_what_was_asked_for_is_in_use_and_asking_again_loads_nothing(engine: Engine) -> None:
    """Loads and turns with the same options: one generation for each set."""
    adapter = str(write_tiny_adapter(engine.root.path / "adapter.gguf", width=128))
    for config in (*USED[engine.backend], *([{"adapters": [adapter]}] if engine.backend == "llama" else [])):
        first = await engine.load(**config)
        assert first.loaded
        for name, value in config.items():
            if name == "min_ctx":
                assert first.active.num_ctx >= value
            else:
                assert getattr(first.active, name) == value, (config, name)
        again = await engine.load(**config)
        assert (again.loaded, again.generation) == (False, first.generation), config
        asked = {"config": api.LoadConfig(**config), "params": api.Sampling(max_tokens=2)}
        turn = await engine.client.turn("good", "hello", **asked).end()
        assert turn.generation == first.generation, config


async def test_what_cannot_be_used_is_refused_and_the_resident_model_stays(engine: Engine) -> None:
    loaded = await engine.load()
    refused = [*REFUSED, *OF_ONE[engine.backend]]
    for config, told in refused if engine.backend == "llama" or FULL else refused[::3]:
        with pytest.raises((UnsupportedFeature, ModelLoadFailed)) as caught:
            await engine.load(**config)
        assert told in str(caught.value), config
    for config in WRONG:
        with pytest.raises(InvalidParams, match=next(iter(config))):
            await engine.load(**config)
    with pytest.raises(UnsupportedFeature, match="min_ctx 1024"):
        settings = api.ConfigureParams(model="good", config=api.LoadConfig(num_ctx=512, min_ctx=1024))
        await engine.client.call("model/configure", settings, api.ConfigureResult)
    with pytest.raises(InsufficientMemory) as big:
        await engine.load(num_ctx=2**31 - 1)
    assert big.value.fits == 2048, "no more is advised than the model was made for"
    status = await engine.client.status()
    assert (status.state, status.generation) == ("Ready", loaded.generation)


async def test_a_context_above_training_warns(engine: Engine) -> None:
    config = api.LoadConfig(num_ctx=3072)
    info = await engine.client.call("model/describe", api.DescribeParams(model="good", config=config), api.ModelInfo)
    told = "a context of 3072 tokens is more than the 2048 that the model was trained on"
    assert told in info.warnings
    assert told in (await engine.load(num_ctx=3072)).warnings


@pytest.mark.llama
async def test_options_of_a_turn_are_used_or_refused(data_root: DataRoot) -> None:
    write_tiny_gguf(data_root.models / "good.gguf", name="good")
    async with Modeld(data_root, "llama") as modeld, modeld.client() as client:
        loaded = await client.load("good")

        async def ask(**params: Any) -> api.TurnResult:
            return await client.turn("good", "hello", params=api.Sampling(max_tokens=2, **params)).end()

        for params in (
            {"temperature": -3.0},
            {"top_k": -2},
            {"top_p": 1.5},
            {"min_p": -0.1},
            {"repeat_penalty": 0.0},
            {"presence_penalty": 3.0},
            {"frequency_penalty": -3.0},
            {"logit_bias": {"1": 1e9}},
        ):
            with pytest.raises(InvalidParams, match=next(iter(params))):
                await ask(**params)
        for token in ("999999999", "-1"):
            with pytest.raises(UnsupportedFeature, match=r"logit_bias for token .* \(0 to 269\)"):
                await ask(logit_bias={token: 1.0})
        with pytest.raises(InvalidParams, match="seed"):
            await ask(seed=2**70)
        for seed in (-1, 2**32 - 1, 2**63 - 1):
            assert (await ask(seed=seed, temperature=1.0)).usage.generated == 2
        assert (await client.status()).generation == loaded.generation


async def test_thirty_files_and_options_that_cannot_load_cost_the_resident_model_nothing(engine: Engine) -> None:
    """The same generation, the conversation still warm, and the engine's own reason for each."""
    names = write_unloadable(engine.root.models)
    adapters = [str(one) for one in write_adapters(engine.root.path)]
    assert len(names) + len(adapters) >= 30
    if not FULL:  # a second each, on OpenVINO two
        step = 3 if engine.backend == "llama" else 7
        names, adapters = names[::step], adapters[::step]
    loaded = await engine.load()
    turn = {"params": api.Sampling(max_tokens=2), "conversation": "c"}
    before = await engine.client.turn("good", "word " * 50, **turn).end()
    reasons: dict[str, str] = {}
    for name in names:
        with pytest.raises(ModeldError) as caught:
            await engine.load(name)
        reasons[name] = str(caught.value)
    for adapter in adapters:
        with pytest.raises((ModelLoadFailed, UnsupportedFeature)):
            await engine.load(adapters=[adapter])
    status = await engine.client.status()
    assert (status.state, status.generation) == ("Ready", loaded.generation), reasons
    after = await engine.client.turn("good", "word " * 50, **turn).end()
    assert after.usage.reused > before.usage.prefilled // 2 > before.usage.reused
    assert "blk.1.ffn_up.weight" in reasons["missing-tensor"]
    assert all(reasons.values())
