"""Reuse changes the cost of a turn and never its answer: random edit histories against a fresh engine."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from engine_bench import Answer, Engine, Engines, Messages, assistant, user
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from counts import FULL
from shared.protocol.api import Sampling

pytestmark = [pytest.mark.integration]
ANSWER = Sampling(temperature=0.0, max_tokens=12)
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")
HISTORIES = 12 if FULL else 4
#: Full precision: in half precision, tokens evaluated in batches of other sizes differ by a rounding
#: (0.04 in a logit was measured), and these models are noise with near ties that a rounding turns.
EXACT = {"kv_type": "f32", "flash_attention": False}


def sentence(seed: int, words: int) -> str:
    """The same words for the same seed."""
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(words))


step = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 2), st.integers(1, 40)),
    st.tuples(st.just("regenerate"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("edit"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("drop thoughts"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("branch"), st.integers(0, 2), st.integers(0, 2)),
)


class Conversations:
    """Three conversations of one client, edited in every way an editor allows."""

    def __init__(self, warm: Engine, cold: Callable[[], Awaitable[Engine]]) -> None:
        self._warm = warm
        self._cold = cold
        self._all: list[Messages] = [[], [], []]
        self._seed = 0
        self.reused = 0

    def change(self, kind: str, which: int, number: int) -> Messages:
        """Apply one step; the messages to answer now."""
        self._seed += 1
        messages = self._all[which]
        if kind == "regenerate" and messages:
            del messages[-1]
        elif kind == "edit" and messages:
            at = (number * 2) % len(messages)
            del messages[at:]
        elif kind == "drop thoughts" and len(messages) > 1:
            at = (number * 2 + 1) % len(messages)
            messages[at] = assistant(messages[at]["content"][: number + 1])
        elif kind == "branch":
            messages[:] = [dict(one) for one in self._all[number]]
        if not messages or messages[-1]["role"] == "assistant":
            messages.append(user(sentence(self._seed, number * 3 + 2)))
        return messages

    async def step(self, kind: str, which: int, number: int) -> None:
        """One turn on both engines; the answers must be the same."""
        messages = self.change(kind, which, number)
        warm = await self._warm.ask(messages, ANSWER, conversation=None if which == 2 else f"c{which}")
        self.reused += warm.done.usage.reused
        expected = await self.fresh(messages)
        assert warm.text == expected.text
        assert total(warm) == total(expected)
        messages.append(assistant(warm.text))

    async def fresh(self, messages: Messages) -> Answer:
        """The answer of an engine that has nothing warm."""
        engine = await self._cold()
        answer = await engine.ask(messages, ANSWER)
        assert answer.done.usage.reused <= 1  # every prompt begins with the same mark
        return answer


def total(answer: Answer) -> int:
    """Tokens of the prompt."""
    return answer.done.usage.reused + answer.done.usage.prefilled


async def open_pair(path: Path, engines: Engines, parked_bytes: int) -> tuple[Engine, Callable[[], Awaitable[Engine]]]:
    """The engine under test, and one whose lane is flushed before each use."""
    warm = await engines.load("llama", path, parked_bytes=parked_bytes, **EXACT)
    other = await engines.load("llama", path, parked_bytes=0, **EXACT)
    flushes = itertools.count()

    async def cold() -> Engine:
        flush = [{"role": f"flush{next(flushes)}", "content": "x" * 80}]
        await other.ask(flush, Sampling(temperature=0.0, max_tokens=1))
        return other

    return warm, cold


@pytest.mark.timeout(120)
@pytest.mark.parametrize("parked_bytes", [0, 64 << 20])
@pytest.mark.parametrize("shape", ["tiny", "tiny_window"])
def test_answers_do_not_depend_on_reuse(
    shape: str, parked_bytes: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engines = Engines(tmp_path)
    reused: list[int] = []

    with asyncio.Runner() as runner:
        try:
            pair = runner.run(open_pair(request.getfixturevalue(shape), engines, parked_bytes))

            async def play(history: list[tuple[str, int, int]]) -> None:
                conversations = Conversations(*pair)
                for kind, which, number in history:
                    await conversations.step(kind, which, number)
                reused.append(conversations.reused)

            @settings(
                max_examples=HISTORIES,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],  # a shrunk history would meet what others left warm
                suppress_health_check=[HealthCheck.too_slow],
            )
            @given(st.lists(step, min_size=2, max_size=10))
            def histories(history: list[tuple[str, int, int]]) -> None:
                runner.run(play(history))

            histories()
        finally:
            runner.run(engines.close())
    assert sum(reused) > 0
