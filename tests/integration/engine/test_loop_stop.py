"""The loop stop with real weights: both engines, and the corpora under two real vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_bench import Engines, assistant, user

from acp_bridge.tools.builtin import PLAIN_SYSTEM
from modeld.engine.contract import AbortFlag, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.output.repetition import EVERY, ROWS, WORDS, RepetitionWatch
from repetitive_texts import loops, wanted
from shared.catalog.identity import RequestedIdentity
from shared.protocol.api import Sampling

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(300)]
GREETINGS = ("hi", "hello", "2+2?")
#: What the test of a warm conversation makes llama.cpp say without end: it has no other tokens to choose from.
SENTENCE = " I will help you."


def vocabulary(path: Path) -> LlamaEngine:
    """A model without its weights."""
    engine = LlamaEngine(AbortFlag())
    engine.prepare()
    identity = RequestedIdentity(backend="llama", name="m", digest="d", path=str(path))
    engine.load(LoadRequest(identity=identity, model={}, num_ctx=512, vocabulary_only=True), lambda done, of: None)
    return engine


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_the_corpora_under_a_real_vocabulary(model: str, request: pytest.FixtureRequest) -> None:
    engine = vocabulary(request.getfixturevalue(model))

    def stopped_at(text: str, asked: str) -> int | None:
        watch = RepetitionWatch(asked)
        pieces = (engine.piece(token, special=True) for token in engine.tokenize(text, special=False))
        return next((count for count, piece in enumerate(pieces, start=1) if watch.feed(piece)), None)

    try:
        assert [answer.name for answer in wanted() if stopped_at(answer.text, answer.request) is not None] == []
        found = {answer.name: stopped_at(answer.text, answer.request) for answer in loops()}
        bound = ROWS + EVERY + 40
        assert {name: at for name, at in found.items() if at is None or at > bound} == {}
    finally:
        engine.close()


@pytest.mark.llama
async def test_a_loop_ends_and_the_next_prompt_finds_it_warm(engines: Engines, smollm2: Path) -> None:
    words = vocabulary(smollm2)
    bias = {str(token): 100.0 for token in words.tokenize(SENTENCE, special=False)}
    words.close()
    engine = await engines.load("llama", smollm2, num_ctx=512)
    looped = await engine.ask("hi", Sampling(temperature=0.0, logit_bias=bias))
    assert (looped.done.finish_reason, looped.done.ended_by) == ("length", "repetition")
    usage = looped.done.usage
    assert usage.generated <= WORDS + EVERY
    reported = [user("hi"), assistant(looped.text), user("What is the capital of France?")]
    after = await engine.ask(reported, Sampling(temperature=0.0, max_tokens=8))
    assert after.done.usage.reused >= usage.prefilled + usage.generated - 1, "all that was evaluated"


@pytest.mark.openvino
async def test_no_greeting_runs_to_the_end_of_the_window(engines: Engines, converted_smollm2: Path) -> None:
    engine = await engines.load("openvino", converted_smollm2, num_ctx=4096)
    for text in GREETINGS:
        messages = [{"role": "system", "content": PLAIN_SYSTEM}, user(text)]
        answer = await engine.ask(messages, Sampling(seed=1))
        assert answer.done.finish_reason == "stop" or answer.done.ended_by == "repetition", text
        assert answer.done.usage.generated <= ROWS + EVERY + WORDS, "a loop of marks may come after one of words"
        after = [*messages, assistant(answer.text), user("What is the capital of France?")]
        assert (await engine.ask(after, Sampling(seed=1, max_tokens=8))).done.usage.generated > 0


@pytest.mark.llama
async def test_what_ends_by_itself_is_the_same_with_and_without(engines: Engines, smollm2: Path) -> None:
    engine = await engines.load("llama", smollm2, num_ctx=1024)
    for text in (*GREETINGS, "What is the capital of France?", "Name three fruits."):
        messages = [{"role": "system", "content": PLAIN_SYSTEM}, user(text)]
        watched, free = [
            await engine.ask(messages, Sampling(seed=3, max_tokens=250, loop_stop=on)) for on in (None, False)
        ]
        assert watched.done.ended_by or watched.text == free.text
        assert free.text.startswith(watched.text.rstrip()), "never other words, only fewer of a loop"
