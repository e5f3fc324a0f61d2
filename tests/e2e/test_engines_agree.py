"""Both engines on the same weights: the same token counts, the right word, and nothing written for one model."""

from __future__ import annotations

import pytest

from clients.home import Home
from clients.wire import Wire, user

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

CAPITAL = user("What is the capital of France? Answer in one word.")
CONVERSATION = [
    {"role": "system", "content": "You are terse. Ünïcödé and 🦙 are fine."},
    {"role": "user", "content": "Hello there!"},
    {"role": "assistant", "content": "Hello. How can I help?"},
    {"role": "user", "content": "def f(x):\n    return x ** 2  # what is f(3)?"},
]


def test_a_factual_question_greedily(engine: Home) -> None:
    model = engine.model("smollm2")
    with Wire(engine.root) as wire:
        text, result = wire.turn(model, CAPITAL)
        assert "Paris" in text
        again, repeated = wire.turn(model, CAPITAL)
        assert again == text, "greedy and a reused prefix give the same answer"
        assert repeated["usage"].get("reused", 0) > 0
        assert result["usage"]["generated"] == repeated["usage"]["generated"]


@pytest.mark.llama
def test_same_rendered_prompt_same_token_count(home: Home) -> None:
    model = home.model("smollm2")
    counted, prompts = {}, {}
    for backend in ("llama", "openvino"):
        home.start(backend)
        with Wire(home.root) as wire:
            _, result = wire.turn(model, CONVERSATION)
            usage = result["usage"]  # zeros are left out on the wire
            prompts[backend] = usage.get("reused", 0) + usage.get("prefilled", 0)
            counted[backend] = wire.request("model/count", {"model": model, "messages": CONVERSATION})["total"]
        home.run("modeld", "stop")
    assert prompts["llama"] == prompts["openvino"]
    assert counted == prompts


@pytest.mark.llama
def test_another_architecture_answers_too(home: Home) -> None:
    home.start("llama")
    model = home.model("gemma")
    with Wire(home.root) as wire:
        text, result = wire.turn(model, CAPITAL)
        assert text.strip(), "a base model: it goes on writing, it does not answer questions"
        assert result["model"] == model
        assert result["finish_reason"] in ("stop", "length")
