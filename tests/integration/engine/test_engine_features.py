"""Fills between keystrokes, vectors in batches, and adapters."""

from __future__ import annotations

import math
from pathlib import Path

import anyio
import pytest
from engine_bench import GREEDY, Engine, Engines

from modeld.engine.llama.embedding import Embedder, packed
from modeld.engine.llama.model import FILL_TOKENS
from modeld.pipe import messages as m
from shared.errors import ContextOverflow, ModelLoadFailed
from shared.protocol.api import Event, Prefill, Sampling
from tiny_gguf import write_tiny_adapter

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
FEW = Sampling(temperature=0.0, max_tokens=6)
CODE = "def add(first, second):\n    total = first + second\n    return tot" * 4


async def fill(engine: Engine, prefix: str, suffix: str = "\n", params: Sampling = FEW) -> m.Done:
    """One completion."""
    job = m.Fill(turn=engine.host.next_turn(), prefix=prefix, suffix=suffix, params=params)
    return await engine.host.run(job, lambda events: None)


async def embed(engine: Engine, texts: list[str]) -> list[list[float]]:
    """Vectors."""
    job = m.Embed(turn=engine.host.next_turn(), texts=texts)
    return (await engine.host.run(job, lambda events: None)).vectors


async def test_a_keystroke_costs_its_own_tokens_and_those_behind_the_cursor(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    first = await fill(engine, CODE)
    assert first.usage.reused == 0
    assert first.text
    for typed in ("a", "al", "al * 2"):
        next_one = await fill(engine, CODE + typed)
        assert next_one.usage.reused >= len(CODE) * 0.8
        assert next_one.usage.prefilled <= len(typed) + 4 + first.usage.generated
        cold = await engines.load("llama", tiny)
        assert (await fill(cold, CODE + typed)).usage.prefilled == next_one.usage.reused + next_one.usage.prefilled
    back = await fill(engine, CODE)
    assert back.usage.reused >= len(CODE) * 0.8, "a deleted character costs no more than a typed one"


async def test_the_next_fill_stops_the_one_that_runs(engines: Engines, slow: Path) -> None:
    """As the daemon does it: a cancel of the older, the newer behind it; between two graph nodes, not two batches."""
    engine = await engines.load("llama", slow)
    outcomes: list[m.Done] = []

    async def first() -> None:
        number = engine.host.next_turn()
        job = m.Fill(turn=number, prefix=CODE * 3, suffix="x", params=Sampling(temperature=0.0, max_tokens=900))

        def begun(events: list[Event]) -> None:
            if any(isinstance(one, Prefill) for one in events):
                engine.host.cancel(number)

        outcomes.append(await engine.host.run(job, begun))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
    after = await fill(engine, CODE * 3, "x")
    assert outcomes[0].finish_reason == "cancelled"
    assert outcomes[0].usage.generated < 900
    assert after.usage.reused > 0, "what the stopped one had computed is not computed again"
    fresh = await engines.load("llama", slow)
    assert after.text == (await fill(fresh, CODE * 3, "x")).text


async def test_a_fill_larger_than_its_lane_is_refused_with_the_numbers(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    with pytest.raises(ContextOverflow) as refused:
        await fill(engine, "x" * (FILL_TOKENS + 10))
    assert refused.value.context == FILL_TOKENS
    assert (await fill(engine, "x")).usage.generated > 0


async def test_a_stop_string_ends_a_fill_and_is_not_in_it(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    whole = (await fill(engine, "word " * 30, params=Sampling(temperature=0.0, max_tokens=20))).text
    assert len(whole) > 4
    stop = whole[len(whole) // 2 : len(whole) // 2 + 2]
    done = await fill(engine, "word " * 30, params=Sampling(temperature=0.0, max_tokens=20, stop=[stop]))
    assert done.text == whole[: whole.index(stop)]
    assert done.finish_reason == "stop"


# --- vectors -----------------------------------------------------------------------------------


def test_texts_share_a_batch_as_far_as_they_fit() -> None:
    assert packed([100, 100, 400, 0, 500, 1, 1], 512, 16) == [[0, 1], [2], [4, 5, 6]]
    assert packed([1] * 40, 512, 16) == [list(range(16)), list(range(16, 32)), list(range(32, 40))]
    assert packed([], 512, 16) == packed([0, 0], 512, 16) == []


async def test_a_vector_does_not_depend_on_the_texts_beside_it(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    texts = [f"text number {number} " * (1 + number % 7) for number in range(40)]
    together = await embed(engine, texts)
    assert len(together) == 40
    for number in (0, 5, 17, 39):
        (alone,) = await embed(engine, [texts[number]])
        assert sum(a * b for a, b in zip(alone, together[number], strict=True)) == pytest.approx(1.0, abs=1e-4)
        assert math.hypot(*alone) == pytest.approx(1.0, abs=1e-5)
    assert sum(a * b for a, b in zip(together[0], together[1], strict=True)) < 0.9999


async def test_an_empty_text_among_others_has_no_direction(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    vectors = await embed(engine, ["one", "", "two"])
    assert math.hypot(*vectors[1]) == 0.0
    assert len(vectors[1]) == len(vectors[0])


async def test_a_text_that_is_too_long_is_refused_and_the_next_is_not(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    with pytest.raises(ContextOverflow) as refused:
        await embed(engine, ["fine", "x" * (Embedder.BATCH + 1)])
    assert refused.value.context == Embedder.BATCH
    assert len(await embed(engine, ["fine"])) == 1


async def test_vectors_disturb_no_conversation(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny)
    await engine.ask("word " * 50, FEW)
    await embed(engine, ["something else"] * 5)
    again = await engine.ask("word " * 50, FEW)
    assert again.done.usage.prefilled <= 2


# --- adapters ----------------------------------------------------------------------------------


async def test_an_adapter_changes_the_answer_and_the_identity(engines: Engines, tiny: Path, tmp_path: Path) -> None:
    adapter = write_tiny_adapter(tmp_path / "adapter.gguf")
    other = write_tiny_adapter(tmp_path / "other.gguf", seed=6)
    plain = await engines.load("llama", tiny)
    adapted = await engines.load("llama", tiny, adapters=(str(adapter),))
    both = await engines.load("llama", tiny, adapters=(str(adapter), str(other)))
    identities = [one.loaded.identity for one in (plain, adapted, both)]
    assert [one.adapters for one in identities] == [(), (str(adapter),), (str(adapter), str(other))]
    assert len(set(identities)) == 3
    answers = [(await one.ask("Say something.", GREEDY)).text for one in (plain, adapted, both)]
    assert len(set(answers)) == 3
    assert (await adapted.ask("Say something.", GREEDY)).text == answers[1]


@pytest.mark.parametrize("fault", ["missing", "other width", "other architecture", "no adapter"])
async def test_an_adapter_that_does_not_fit_fails_the_load_by_its_name(
    engines: Engines, tiny: Path, tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "adapter.gguf"
    if fault == "other width":
        write_tiny_adapter(path, width=32)
    elif fault == "other architecture":
        write_tiny_adapter(path, architecture="qwen2")
    elif fault == "no adapter":
        path.write_bytes(b"GGUF nonsense")
    with pytest.raises(ModelLoadFailed) as failed:
        await engines.load("llama", tiny, adapters=(str(path),))
    assert failed.value.stage == "weights"
    assert failed.value.reason
