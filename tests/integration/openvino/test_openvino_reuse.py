"""Reuse changes what a turn costs and never what it says; a cancel leaves no trace."""

from __future__ import annotations

import random

import pytest
from openvino_bench import CHUNK, SHORT, Bench, Direct

from counts import FULL
from modeld.engine.contract import DecodeOptions
from modeld.engine.openvino.blocks import BLOCK

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(300)]
HISTORIES = 12 if FULL else 2
STEPS = 4


def words(bench: Bench, seed: int, count: int) -> list[int]:
    """Tokens of plain text, the same for the same seed."""
    chosen = random.Random(seed)
    text = " ".join(chosen.choice(_WORDS) for _ in range(count))
    return bench.engine.tokenize(text, special=False)[:count]


_WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")


def test_it_knows_the_capital_of_france(bench: Bench) -> None:
    prompt = bench.render({"role": "user", "content": "What is the capital of France?"})
    answer = bench.ask(prompt)
    assert answer is not None
    assert "Paris" in bench.text(answer)


def test_the_next_turn_prefills_only_what_is_new(bench: Bench) -> None:
    first = {"role": "user", "content": "Tell me a story. " * 30}
    prompt = bench.render(first)
    said = bench.ask(prompt)
    assert said is not None
    reported = {"role": "assistant", "content": bench.text(said)}
    chunks: list[int] = []
    follow = bench.render(first, reported, {"role": "user", "content": "And then?"})
    bench.ask(follow, on_chunk=chunks.append)
    assert bench.reused >= len(prompt)
    assert chunks == [len(follow)]


def test_answers_do_not_depend_on_reuse(bench: Bench, direct: Direct) -> None:
    chance = random.Random(20)
    reused = 0
    for history in range(HISTORIES):
        prompt = words(bench, history, chance.randint(20, 120))
        for step in range(STEPS):
            answer = bench.ask(prompt)
            assert answer == direct.ask(prompt), f"history {history}, step {step}, {len(prompt)} tokens"
            reused += bench.reused
            prompt = _edited(chance, prompt, answer, words(bench, history * 100 + step, chance.randint(1, 90)))
    assert reused > 0
    assert bench.engine._pipeline is not None
    assert bench.engine._pipeline.mismatches == 0


def _edited(chance: random.Random, prompt: list[int], answer: list[int] | None, new: list[int]) -> list[int]:
    kind = chance.choice(["go on", "edit", "other"])
    if kind == "go on":
        return [*prompt, *(answer or []), *new]
    if kind == "edit":
        return [*prompt[: chance.randint(1, len(prompt))], *new]
    return new


@pytest.mark.parametrize(("chunks", "beginning"), [(1, 109), (2, 125)])
def test_a_cancel_between_chunks_leaves_the_next_answer_as_a_fresh_one(
    bench: Bench, direct: Direct, chunks: int, beginning: int
) -> None:
    """Also where an earlier turn left a block half full, which the pipeline would take for whole."""
    begin = words(bench, beginning * 10 + chunks, beginning)
    earlier = bench.ask(begin)
    assert earlier is not None
    prompt = [*begin, *earlier, *words(bench, beginning + chunks, 3 * CHUNK)]
    seen: list[int] = []

    def stop(done: int) -> None:
        seen.append(done)
        if len(seen) == chunks:
            bench.abort.set()

    assert bench.ask(prompt, on_chunk=stop) is None
    assert bench.engine.valid()
    assert len(seen) == chunks
    assert bench.ask(prompt) == direct.ask(prompt)
    assert bench.reused >= seen[-1] - CHUNK


def test_a_cancel_in_decode_leaves_the_next_answer_as_a_fresh_one(bench: Bench, direct: Direct) -> None:
    prompt = words(bench, 77, 150)
    engine, options = bench.engine, DecodeOptions(max_tokens=SHORT)
    engine.ensure_prefix(prompt)
    engine.prefill_suffix(options, lambda done, of: None)
    tokens = engine.decode(options)
    part = [next(tokens) for _ in range(3)]
    tokens.close()
    engine.end_turn()
    assert engine.valid()
    answer = bench.ask(prompt)
    assert answer == direct.ask(prompt)
    assert answer is not None
    assert answer[:3] == part


def test_a_full_pool_forgets_the_oldest_and_tells_the_truth(bench: Bench) -> None:
    first = words(bench, 1000, 200)
    bench.ask(first)
    bench.ask(first)
    assert bench.reused == len(first) // BLOCK * BLOCK
    for seed in range(1002, 1007):
        bench.ask(words(bench, seed, 200))
    bench.ask(first)
    assert bench.reused == 0
    assert bench.engine._pipeline is not None
    assert bench.engine._pipeline.mismatches == 0


def test_greedy_and_seeded_answers_repeat(bench: Bench) -> None:
    prompt = words(bench, 5, 40)
    drawn = DecodeOptions(max_tokens=SHORT, temperature=1.0, top_p=0.95, top_k=40, seed=7)
    other = DecodeOptions(max_tokens=SHORT, temperature=1.0, top_p=0.95, top_k=40, seed=8)
    first = bench.ask(prompt, drawn)
    assert bench.ask(prompt) == bench.ask(prompt)
    assert bench.ask(prompt, drawn) == first
    assert bench.ask(prompt, other) != first
