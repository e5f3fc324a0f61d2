"""What every engine does alike, through the real worker process and pipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_bench import Engine, Engines, assistant, identity, user

from modeld.pipe.messages import Load
from shared.errors import BackendUnavailable, ContextOverflow, EngineFailed
from shared.protocol.api import Event, Prefill, Prefix, Sampling, TextDelta

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(90)]  # a real model, on a busy machine
GREEDY = Sampling(temperature=0.0, max_tokens=12)
#: One token: a model that has anything to say ends by its limit, whatever it would have said.
BRIEF = Sampling(temperature=0.0, max_tokens=1)


async def test_a_load_answers_with_the_values_in_use(engine: Engine) -> None:
    used = engine.loaded.identity
    assert used.num_ctx == engine.window
    assert used.num_batch > 0
    assert used.device
    assert len(used.template_digest) == 64
    assert used.bos_policy in ("add", "none")
    assert used.runtime_digest
    assert engine.loaded.measured_bytes > 0
    assert engine.loaded.capabilities["reuse_counts"] is True


async def test_a_turn_tells_its_stages_in_order_and_its_counts_exactly(engine: Engine) -> None:
    messages = [user("Tell me something about the weather.")]  # the first turn of this engine: nothing is warm
    answer = await engine.ask(messages, Sampling(temperature=0.0, max_tokens=10))
    kinds = [type(event).__name__ for event in answer.events]
    assert kinds[0] == "Prefix"
    assert kinds[1] == "Prefill"
    assert kinds.index("Generating") < kinds.index("TextDelta")
    usage = answer.done.usage
    assert usage.reused == 0
    assert usage.prefilled == await engine.count(messages)
    assert usage.generated == 10
    assert answer.done.finish_reason == "length"
    assert answer.of(Prefix)[0].total == usage.prefilled
    assert answer.of(Prefill)[-1].done == usage.prefilled
    assert 0 < answer.done.prefill_s <= answer.done.first_token_s


async def test_the_next_turn_prefills_only_what_is_new(engine: Engine) -> None:
    first = [user(await engine.long(300))]
    said = await engine.ask(first, GREEDY)
    second = [*first, assistant(said.text), user("and more")]
    answer = await engine.ask(second, GREEDY)
    total = await engine.count(second)
    assert answer.done.usage.reused + answer.done.usage.prefilled == total
    assert answer.done.usage.reused > await engine.count(first) * 0.9
    assert answer.of(Prefix)[0].reused == answer.done.usage.reused


async def test_greedy_answers_repeat(engine: Engine) -> None:
    first = await engine.ask("Say it again.", GREEDY)
    await engine.ask("Something else.", GREEDY)
    again = await engine.ask("Say it again.", GREEDY)
    assert again.text == first.text
    assert (await engine.ask("Something else.", BRIEF)).done.finish_reason == "length"


async def test_a_cancel_in_decode_ends_the_turn_and_leaves_the_next_as_a_fresh_one(engine: Engine) -> None:
    fresh = await engine.ask("Count to a thousand.", GREEDY)

    def stop(turn: int, event: Event) -> None:
        if isinstance(event, TextDelta):
            engine.host.cancel(turn)

    cut = await engine.ask("Count to a thousand.", Sampling(temperature=0.0, max_tokens=1500), on_event=stop)
    assert cut.done.finish_reason == "cancelled"
    assert cut.done.state_valid
    assert 0 < cut.done.usage.generated < 1500
    again = await engine.ask("Count to a thousand.", GREEDY)
    assert again.done.finish_reason == fresh.done.finish_reason
    assert again.text == fresh.text


async def test_a_cancel_in_prefill_ends_the_turn_and_leaves_the_next_as_a_fresh_one(engine: Engine) -> None:
    short = await engine.ask("Hello.", GREEDY)

    def stop(turn: int, event: Event) -> None:
        if isinstance(event, Prefix):
            engine.host.cancel(turn)

    cut = await engine.ask(await engine.long(engine.window * 3 // 4, "other"), GREEDY, on_event=stop)
    assert cut.done.finish_reason == "cancelled"
    assert cut.done.state_valid
    assert cut.text == ""
    assert (await engine.ask("Hello.", GREEDY)).text == short.text


async def test_a_cancel_that_comes_late_touches_nobody(engine: Engine) -> None:
    done = (await engine.ask("One.", GREEDY)).done
    engine.host.cancel(done.turn)
    after = await engine.ask("Two.", BRIEF)
    assert (after.done.finish_reason, after.done.usage.generated) == ("length", 1)


async def test_a_cancel_that_comes_early_stops_exactly_that_turn(engine: Engine) -> None:
    engine.host.cancel(engine.host._turn + 1)
    assert (await engine.ask("One.", GREEDY)).done.finish_reason == "cancelled"
    assert (await engine.ask("Two.", BRIEF)).done.finish_reason == "length"


async def test_a_prompt_over_the_window_is_refused_with_its_numbers(engine: Engine) -> None:
    messages = [user(await engine.long(engine.window * 3 // 2))]
    with pytest.raises(ContextOverflow) as refused:
        await engine.ask(messages)
    assert refused.value.context == engine.window
    assert refused.value.resident + refused.value.additional == await engine.count(messages)
    assert (await engine.ask("short", BRIEF)).done.finish_reason == "length"


async def test_a_full_window_ends_with_its_own_reason(engine: Engine) -> None:
    reasons = []
    for word in ("ever", "go", "one", "la"):  # a real model may find its end before, but not with every prompt
        messages = [user(await engine.long(engine.window - 24, word))]
        answer = await engine.ask(messages, Sampling(temperature=0.0))
        room = engine.window - await engine.count(messages)
        reasons.append(answer.done.finish_reason)
        assert answer.done.usage.generated <= room
        if reasons[-1] == "context_full":
            assert answer.done.usage.generated == room
            break
    assert reasons[-1] == "context_full", reasons


async def test_a_stop_string_ends_the_answer_and_never_shows(engine: Engine) -> None:
    whole = (await engine.ask("Stop somewhere.", GREEDY)).text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    answer = await engine.ask("Stop somewhere.", Sampling(temperature=0.0, max_tokens=12, stop=[stop]))
    assert answer.done.finish_reason == "stop"
    assert answer.text == whole[: whole.index(stop)]


async def test_tokens_are_counted_beside_a_decode(engine: Engine) -> None:
    alone = await engine.count([user("How many?")])
    counted: list[int] = []

    async def ask_long() -> None:
        seen = False

        def first(turn: int, event: Event) -> None:
            nonlocal seen
            if isinstance(event, TextDelta) and not seen:
                seen = True
                group.start_soon(count_and_stop, turn)

        await engine.ask("A long one.", Sampling(temperature=0.0, max_tokens=1500), on_event=first)

    async def count_and_stop(turn: int) -> None:
        counted.append(await engine.count([user("How many?")]))
        assert turn in engine.host.unsettled
        engine.host.cancel(turn)

    import anyio

    async with anyio.create_task_group() as group:
        group.start_soon(ask_long)
    assert counted == [alone]


async def test_a_killed_worker_fails_the_turn_at_once(engine: Engine) -> None:
    """The last one that uses the worker of this file."""

    def kill(_: int, event: Event) -> None:
        if isinstance(event, TextDelta):
            engine.host.kill()

    with pytest.raises(EngineFailed, match="SIGKILL"):
        await engine.ask("Long.", Sampling(temperature=0.0, max_tokens=1500), on_event=kill)
    assert engine.host.exited.is_set()
    with pytest.raises(EngineFailed):
        await engine.ask("Again.")


async def test_without_an_engine_a_load_says_what_to_do(engines: Engines, tmp_path: Path) -> None:
    host = await engines.start("none")
    assert (await host.imported()).runtime_digest == "none"
    message = Load(turn=host.next_turn(), identity=identity(tmp_path / "m.gguf", "none"), model={}, num_ctx=512)
    with pytest.raises(BackendUnavailable) as refused:
        await host.load(message, lambda _: None)
    assert "--backend" in refused.value.hint
    assert not host.exited.is_set()


async def test_the_scripted_engine_is_no_backend_for_users(engines: Engines, tmp_path: Path) -> None:
    host = await engines.start("scripted")
    message = Load(turn=host.next_turn(), identity=identity(tmp_path / "m.gguf", "scripted"), model={}, num_ctx=512)
    with pytest.raises(BackendUnavailable):
        await host.load(message, lambda _: None)
