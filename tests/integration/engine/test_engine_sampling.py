"""What each sampling option does on llama.cpp, and that cache types and flash attention are used as asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import Engine, Engines

from shared.errors import UnsupportedFeature
from shared.protocol.api import Sampling
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
#: Batches of other sizes round otherwise; see test_reuse_defaults.
EXACT: dict[str, Any] = {"kv_type": "f32", "flash_attention": False}
PROMPT = "Say something about the river."


@pytest.fixture(scope="module")
async def engine(shared_engines: Engines, tiny: Path) -> Engine:
    """One model of plain attention."""
    return await shared_engines.load("llama", tiny, **EXACT)


async def said(engine: Engine, **options: Any) -> str:
    """The text of one turn of 24 tokens."""
    values: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, **options}
    return (await engine.ask(PROMPT, Sampling(**values))).text


async def test_the_same_seed_gives_the_same_answer_and_another_does_not(engine: Engine) -> None:
    drawn: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    first = await said(engine, **drawn, seed=7)
    await said(engine, **drawn, seed=8)
    assert await said(engine, **drawn, seed=7) == first
    assert len({await said(engine, **drawn, seed=seed) for seed in range(4)}) > 1


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 0.0001}, {"min_p": 0.999}, {"temperature": 0.0001}])
async def test_each_cut_at_its_narrowest_is_greedy(engine: Engine, narrow: dict[str, float]) -> None:
    wide: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    greedy = await said(engine, temperature=0.0)
    assert await said(engine, **{**wide, **narrow}, seed=1) == greedy
    assert {await said(engine, **wide, seed=seed) for seed in range(3)} != {greedy}


async def test_a_bias_forbids_and_forces(engine: Engine) -> None:
    greedy = await said(engine, temperature=0.0)
    forced = await said(engine, temperature=0.0, logit_bias={str(ord("z")): 100.0})  # one byte, one token
    assert set(forced) == {"z"}
    first = str(ord(greedy[0])) if greedy[0].isascii() and greedy[0].isprintable() else None
    if first is not None:
        assert not (await said(engine, temperature=0.0, logit_bias={first: -100.0})).startswith(greedy[0])


@pytest.mark.parametrize("penalty", [{"repeat_penalty": 1.8}, {"presence_penalty": 1.9}, {"frequency_penalty": 1.9}])
async def test_penalties_make_repetition_rarer(engine: Engine, penalty: dict[str, float]) -> None:
    monotone: dict[str, Any] = {"temperature": 0.0, "logit_bias": {str(ord("z")): 9.0}, "max_tokens": 60}
    plain = await said(engine, **monotone)
    assert (await said(engine, **monotone, **penalty)).count("z") < plain.count("z")


async def test_the_limit_and_the_counts_are_exact(engine: Engine) -> None:
    for limit in (1, 2, 17):
        answer = await engine.ask(PROMPT, Sampling(temperature=0.0, max_tokens=limit))
        assert (answer.done.usage.generated, answer.done.finish_reason) == (limit, "length")


@pytest.mark.parametrize("asked", [{"logit_bias": {"word": 1.0}}, {"max_tokens": 0}, {"tool_choice": "required"}])
async def test_what_is_not_offered_is_refused_by_name(engine: Engine, asked: dict[str, object]) -> None:
    with pytest.raises(UnsupportedFeature):
        await said(engine, **asked)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("flash", [True, "auto"])
async def test_cache_types_and_flash_attention_are_used_as_asked(
    engines: Engines, tmp_path: Path, kv_type: str, flash: bool | str
) -> None:
    wide = write_tiny_gguf(tmp_path / "wide.gguf", width=128)  # heads of 32, as blocks of quantised caches need
    engine = await engines.load("llama", wide, kv_type=kv_type, flash_attention=flash)
    assert engine.loaded.identity.kv_type == kv_type
    assert flash == "auto" or engine.loaded.identity.flash_attention is True
    assert await said(engine, temperature=0.0)


async def test_a_cache_type_that_is_none_is_refused_with_those_that_are(engines: Engines, tiny: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="f16, bf16, q8_0"):
        await engines.load("llama", tiny, kv_type="q9_9")
