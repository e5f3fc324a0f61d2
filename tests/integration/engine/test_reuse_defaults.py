"""What reuse promises with the defaults on quantised weights: the same batches give the same bits, others a rounding.

A token evaluated alone and one evaluated in a batch go through other kernels; the difference of the last bit is carried
through activations of eight bits, so that logits move by some tenths. The same happens with another number of threads
or another batch size, without any reuse.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from modeld.engine.contract import AbortFlag, DecodeOptions, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from shared.catalog.identity import RequestedIdentity

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(600)]
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")
ONE = DecodeOptions(max_tokens=1)
#: Logits of SmolLM2 in Q4_1: 0.7 was the most seen at 600 tokens.
NOISE = 1.5


class Bare:
    """The engine in this process, asked in tokens; its logits are read."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.engine = LlamaEngine(AbortFlag())
        self.engine.prepare()
        identity = RequestedIdentity(backend="llama", name="smollm2", digest="test", path=str(path), **fields)
        self.engine.load(LoadRequest(identity=identity, model={}, num_ctx=1024, threads=1), lambda done, of: None)

    def forget(self) -> None:
        """Nothing is warm."""
        warm = self.engine._warm
        assert warm is not None
        for lane in warm._lanes:
            warm.memory.clear(lane)
        warm.trim(-1)

    def evaluate(self, tokens: Sequence[int]) -> list[float]:
        """Logits behind a prompt."""
        self.engine.ensure_prefix(tokens)
        self.engine.prefill_suffix(ONE, lambda done, of: None)
        native, vocabulary = self.engine._native, self.engine._vocabulary
        assert native is not None
        assert vocabulary is not None
        pointer = native.api.llama_get_logits_ith(native.context, -1)
        logits = list((ctypes.c_float * vocabulary.size).from_address(ctypes.addressof(pointer.contents)))
        self.engine.end_turn()
        return logits

    def answer(self, tokens: Sequence[int], count: int) -> list[int]:
        """A greedy answer, which stays warm."""
        options = DecodeOptions(max_tokens=count)
        self.engine.ensure_prefix(tokens)
        self.engine.prefill_suffix(options, lambda done, of: None)
        answer = list(self.engine.decode(options))
        self.engine.end_turn()
        return answer


@pytest.fixture(scope="module")
def bare(smollm2: Path) -> Iterator[Bare]:
    """SmolLM2 with every default."""
    made = Bare(smollm2)
    yield made
    made.engine.close()


def words(bare: Bare, seed: int, count: int) -> list[int]:
    """Tokens of plain text."""
    chosen = random.Random(seed)
    return bare.engine.tokenize(" ".join(chosen.choice(WORDS) for _ in range(count)), special=False)[:count]


def best(logits: Sequence[float]) -> int:
    """The greedy token."""
    return max(range(len(logits)), key=logits.__getitem__)


def test_the_same_batches_give_the_same_bits(bare: Bare) -> None:
    prompt = words(bare, 1, 128)
    bare.forget()
    fresh = bare.evaluate(prompt)
    bare.forget()
    bare.evaluate(prompt[:64])
    assert bare.evaluate(prompt) == fresh, "half of it was reused, half evaluated as a batch"


def test_a_reused_answer_differs_only_where_two_tokens_were_as_good(bare: Bare) -> None:
    chance = random.Random(7)
    prompt = words(bare, 2, 40)
    most = 0.0
    for step in range(4):
        bare.forget()
        answer = bare.answer(prompt, 6)
        kept = [*prompt, *answer]
        if step % 2:
            kept = kept[: chance.randint(len(prompt) // 2, len(kept))]  # an edit in the middle
        prompt = [*kept, *words(bare, 10 + step, chance.randint(1, 20))]
        warm = bare.evaluate(prompt)
        bare.forget()
        fresh = bare.evaluate(prompt)
        moved = max(abs(a - b) for a, b in zip(warm, fresh, strict=True))
        most = max(most, moved)
        assert moved < NOISE
        chosen = best(warm)
        assert fresh[best(fresh)] - fresh[chosen] <= 2 * moved
    assert most < NOISE


def test_with_flash_attention_and_bf16_every_split_gives_the_same_bits(smollm2: Path) -> None:
    """The setting for answers that repeat across cold and warm starts; the cost stands in docs/design/engines.md."""
    bare = Bare(smollm2, kv_type="bf16", flash_attention=True)
    try:
        prompt = words(bare, 3, 96)
        answer = bare.answer(prompt, 8)
        whole = [*prompt, *answer, *words(bare, 4, 5)]
        warm = bare.evaluate(whole)
        bare.forget()
        fresh = bare.evaluate(whole)
        bare.forget()
        bare.evaluate(whole[:37])
        assert warm == fresh == bare.evaluate(whole)
    finally:
        bare.engine.close()
