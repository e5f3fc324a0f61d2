"""The llama engine on real weights: answers, windows, parking, and how soon a cancel is heard."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from engine_bench import Engine, Engines, assistant, user

from shared.protocol.api import Event, Prefix, Sampling, TextDelta

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(180)]
SYSTEM = {"role": "system", "content": "You are a helpful AI assistant."}
SHORT = Sampling(temperature=0.0, max_tokens=32)
TOPIC = "The river runs through the valley and the mill turns all day long. "


def about(subject: str, sentences: int) -> list[dict[str, str]]:
    """A conversation whose prompt grows with `sentences`."""
    return [SYSTEM, user(f"{subject}: {TOPIC * sentences} What does the mill do?")]


async def test_smollm2_knows_the_capital_of_france(engines: Engines, smollm2: Path) -> None:
    engine = await engines.load("llama", smollm2)
    answer = await engine.ask([SYSTEM, user("What is the capital of France?")], SHORT)
    assert "Paris" in answer.text
    assert answer.done.finish_reason == "stop"
    assert "<|im_end|>" not in answer.text


async def test_gemma3_continues_and_adds_its_bos_token_once(engines: Engines, gemma3: Path) -> None:
    engine = await engines.load("llama", gemma3, model={"template": "{{ bos_token }}{{ messages[0]['content'] }}"})
    assert engine.loaded.identity.bos_policy == "add"
    assert engine.loaded.capabilities["trim"] is False
    one = await engine.count([user("The capital of France is the city of")])
    template = {"template": "{{ messages[0]['content'] }}"}
    plain = await engines.load("llama", gemma3, model=template, vocabulary_only=True)
    assert one == await plain.count([user("The capital of France is the city of")])
    answer = await engine.ask("The capital of France is the city of", Sampling(temperature=0.0, max_tokens=8))
    assert "Paris" in answer.text


@pytest.mark.parametrize("weights", ["smollm2", "gemma3"])
async def test_coming_back_to_a_parked_conversation_costs_its_new_tokens(
    engines: Engines, weights: str, request: pytest.FixtureRequest
) -> None:
    engine = await engines.load("llama", request.getfixturevalue(weights), num_ctx=1024, parked_bytes=256 << 20)
    few = Sampling(temperature=0.0, max_tokens=4)
    first, second = about("Rivers", 6), about("Hills", 6)
    said = await engine.ask(first, few)
    await engine.ask(second, few)
    account = await engine.host.sample()
    assert account is not None
    assert account.parked == 1
    back = await engine.ask([*first, assistant(said.text), user("Why?")], few)
    assert back.done.usage.reused >= said.done.usage.prefilled - 1
    assert back.done.usage.prefilled < 64


async def cancelled_after(engine: Engine, messages: list[dict[str, str]], kind: type[Event], delay: float) -> float:
    """Seconds from a cancel, sent `delay` after the first event of a kind, to the end of the turn."""
    sent = 0.0

    async def later(turn: int) -> None:
        nonlocal sent
        await anyio.sleep(delay)
        sent = time.perf_counter()
        engine.host.cancel(turn)

    async with anyio.create_task_group() as group:
        seen = False

        def watch(turn: int, event: Event) -> None:
            nonlocal seen
            if isinstance(event, kind) and not seen:
                seen = True
                group.start_soon(later, turn)

        answer = await engine.ask(messages, Sampling(temperature=0.0, max_tokens=2000), on_event=watch)
    assert answer.done.finish_reason == "cancelled"
    return time.perf_counter() - sent


async def test_a_cancel_is_heard_within_one_graph_node_and_leaves_a_sound_engine(
    engines: Engines, smollm2: Path, record_property: Callable[[str, object], None]
) -> None:
    """The times are recorded, not asserted (bench asserts them); that a batch is left in its middle is."""
    engine = await engines.load("llama", smollm2, num_ctx=2048)
    fresh = await engine.ask([SYSTEM, user("What is the capital of France?")], SHORT)
    whole = await engine.ask(about("Whole", 16), Sampling(temperature=0.0, max_tokens=1))
    prefill = await cancelled_after(engine, about("Cut", 16), Prefix, 0.1)
    decode = await cancelled_after(engine, [SYSTEM, user("Tell a very long story.")], TextDelta, 0.1)
    record_property("cancel_prefill_s", prefill)
    record_property("cancel_decode_s", decode)
    assert prefill < whole.done.prefill_s / 2
    again = await engine.ask([SYSTEM, user("What is the capital of France?")], SHORT)
    assert again.text == fresh.text
