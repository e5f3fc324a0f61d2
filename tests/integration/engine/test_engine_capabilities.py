"""What an engine says it can do is so, and what it says it cannot is refused by its type: capability by capability."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_bench import Engine, Engines, assistant, identity, user

from modeld.engine.contract import Capabilities
from modeld.pipe import messages as m
from shared.errors import BackendUnavailable, EngineFailed, ModelLoadFailed, UnsupportedFeature
from shared.protocol.api import Event, Sampling, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(300)]

FEW = Sampling(temperature=0.0, max_tokens=4)
GREEDY = Sampling(temperature=0.0, max_tokens=12)
SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green"]}},
    "required": ["color"],
    "additionalProperties": False,
}
IMAGE: dict[str, Any] = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ],
}
#: capability -> the test of this folder that proves both of its answers.
PROVEN = {
    "snapshot": "test_parked_conversations_come_back_where_the_engine_parks",
    "reuse_counts": "test_the_next_turn_prefills_only_what_is_new",
    "trim": "test_a_conversation_is_cut_where_the_engine_can_cut",
    "cancel_prefill": "test_a_cancel_in_prefill_ends_the_turn_and_leaves_the_next_as_a_fresh_one",
    "cancel_decode": "test_a_cancel_in_decode_ends_the_turn_and_leaves_the_next_as_a_fresh_one",
    "cancel_load": "test_a_cancelled_load_is_a_failed_load_and_the_worker_can_be_closed",
    "lanes": "test_no_more_lanes_are_used_than_the_engine_has",
    "fim": "test_fill_in_the_middle_where_the_vocabulary_has_its_marks",
    "grammar": "test_a_schema_binds_the_answer_where_the_engine_has_grammars",
    "vision": "test_a_model_without_a_projector_does_not_see",
    "embeddings": "test_vectors_where_the_engine_makes_them",
    "embedding_only": "test_a_model_that_makes_vectors_only_refuses_to_chat",
}


def test_every_capability_of_the_contract_is_in_the_suite() -> None:
    assert set(PROVEN) == set(Capabilities.__struct_fields__)
    folder = Path(__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("test_engine_*.py"))
    assert [name for name in PROVEN.values() if not re.search(rf"def {name}\(", text)] == []


def able(engine: Engine) -> Capabilities:
    return msgspec.convert(engine.loaded.capabilities, Capabilities)


async def work(engine: Engine, job: type[Any], **fields: Any) -> m.Done:
    return await engine.host.run(job(turn=engine.host.next_turn(), **fields), lambda events: None)


def about(subject: str) -> list[dict[str, str]]:
    """No subject twice: each test finds nothing of its own warm."""
    return [user(f"{subject}: " + "the river runs through the valley and turns the mill " * 12)]


async def kept(engine: Engine) -> m.Account:
    account = await engine.host.sample()
    assert account is not None
    return account


async def test_parked_conversations_come_back_where_the_engine_parks(engine: Engine) -> None:
    first = await engine.ask(about("Rivers"), FEW)
    for subject in ("Hills", "Mills"):
        await engine.ask(about(subject), FEW)
    account = await kept(engine)
    assert (account.parked > 0) == able(engine).snapshot
    assert (account.parked_bytes > 0) == able(engine).snapshot
    back = await engine.ask(about("Rivers"), FEW)
    assert back.text == first.text
    if able(engine).snapshot:
        assert back.done.usage.prefilled <= 64 < back.done.usage.reused
    await work(engine, m.TrimParked, limit=0)
    trimmed = await kept(engine)
    assert (trimmed.parked, trimmed.parked_bytes) == (0, 0)
    assert (await engine.ask(about("Rivers"), FEW)).text == first.text


async def test_a_conversation_is_cut_where_the_engine_can_cut(engine: Engine) -> None:
    story = "the river runs through the valley and turns the mill " * 14
    await engine.ask([user(story + "Now tell me of the mill.")], FEW)
    other = await engine.ask([user(story + "Or of the bridge beside it?")], FEW)
    shared_words = await engine.count([user(story)])
    if able(engine).trim:
        assert other.done.usage.reused >= shared_words * 0.85
    assert other.done.usage.reused + other.done.usage.prefilled == await engine.count(
        [user(story + "Or of the bridge beside it?")]
    )


async def test_no_more_lanes_are_used_than_the_engine_has(engine: Engine) -> None:
    assert able(engine).lanes >= 1
    for subject in ("lakes", "woods", "fields", "farms", "roads"):
        await engine.ask(f"Tell me of {subject}.", FEW)
        account = await kept(engine)
        assert 1 <= account.lanes_used <= able(engine).lanes
        assert account.rss_bytes > 0
        assert (account.running, account.stage) == (None, "idle")


async def test_fill_in_the_middle_where_the_vocabulary_has_its_marks(engine: Engine) -> None:
    chat = about("Bridges")
    said = await engine.ask(chat, FEW)
    fill = {"prefix": "def add(a, b):\n    return ", "suffix": "\n", "params": FEW}
    if not able(engine).fim:
        with pytest.raises(UnsupportedFeature):
            await work(engine, m.Fill, **fill)
    else:
        done = await work(engine, m.Fill, **fill)
        assert done.usage.generated > 0
        assert done.finish_reason in ("stop", "length")
    going_on = [*chat, assistant(said.text), user("and more")]
    after = await engine.ask(going_on, FEW)
    assert after.done.usage.reused >= await engine.count(chat) * 0.9, "a fill costs no chat its lane"


async def test_a_warm_up_is_what_the_next_turn_reuses(engine: Engine) -> None:
    messages = about("Wells")
    done = await work(engine, m.Warm, messages=messages, tools=[])
    assert (done.usage.generated, done.finish_reason) == (0, "stop")
    answer = await engine.ask(messages, FEW)
    assert answer.done.usage.reused >= await engine.count(messages) * 0.9


async def test_a_schema_binds_the_answer_where_the_engine_has_grammars(engine: Engine) -> None:
    asked = Sampling(temperature=0.0, max_tokens=64, json_schema=SCHEMA)
    if not able(engine).grammar:
        with pytest.raises(UnsupportedFeature):
            await engine.ask("Which color?", asked)
        return
    answer = await engine.ask("Which color?", asked)
    assert json.loads(answer.text)["color"] in ("red", "green")
    free = await engine.ask("Which color?", GREEDY)
    assert free.done.finish_reason in ("stop", "length"), "the next turn is bound by nothing"


async def test_a_model_without_a_projector_does_not_see(engine: Engine) -> None:
    """With one it does: test_engine_vision.py."""
    assert able(engine).vision is False


async def test_an_image_is_refused_and_never_left_out(engine: Engine) -> None:
    with pytest.raises(UnsupportedFeature, match="image_url"):
        await engine.ask([IMAGE])
    with pytest.raises(UnsupportedFeature, match="image_url"):
        await engine.count([IMAGE])
    words = {"role": "user", "content": [{"type": "text", "text": "Only words."}]}
    assert (await engine.ask([words], FEW)).done.usage.generated > 0
    total = await engine.count([user("Only words.")])
    assert total == await engine.count([words]), "the same words, the same tokens"
    again = (await engine.ask([user("Only words.")], FEW)).done.usage
    assert again.prefilled <= 2, "and they are warm"


async def test_vectors_where_the_engine_makes_them(engine: Engine) -> None:
    before = await engine.ask("Say it again.", GREEDY)
    texts = ["the mill turns", "the mill turns", "a quiet town"]
    if not able(engine).embeddings:
        with pytest.raises(UnsupportedFeature):
            await work(engine, m.Embed, texts=texts)
    else:
        vectors = (await work(engine, m.Embed, texts=texts)).vectors
        assert [math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-3) for vector in vectors] == [True] * 3
        assert vectors[0] == vectors[1] != vectors[2]
    assert (await engine.ask("Say it again.", GREEDY)).text == before.text


async def test_a_model_that_makes_vectors_only_refuses_to_chat(engines: Engines, tiny: Path) -> None:
    engine = await engines.load("llama", tiny, model={"embedding_only": True})
    assert able(engine).embedding_only
    with pytest.raises(UnsupportedFeature, match="vectors only"):
        await engine.ask("Hello.")
    assert len((await work(engine, m.Embed, texts=["one"])).vectors) == 1


async def test_steps_are_a_turn_in_pieces(engine: Engine) -> None:
    whole = await engine.ask("And now of boats.", GREEDY)
    fresh = [user("Something else altogether.")]
    once = await engine.ask(fresh, GREEDY)
    events: list[Event] = []

    async def step(job: type[Any], **fields: Any) -> m.Done:
        return await engine.host.run(job(turn=engine.host.next_turn(), **fields), events.extend)

    await step(m.EnsurePrefix, messages=fresh, tools=[], params=GREEDY)
    prefilled = await step(m.PrefillSuffix)
    assert prefilled.usage.reused + prefilled.usage.prefilled == await engine.count(fresh)
    done = await step(m.Decode)
    assert (done.finish_reason, done.usage.generated) == (once.done.finish_reason, once.done.usage.generated)
    assert "".join(getattr(event, "text", "") for event in events) == once.text
    with pytest.raises(EngineFailed, match="the one before it"):
        await step(m.Decode)
    # A turn that was left open is closed by whatever comes next.
    await step(m.EnsurePrefix, messages=fresh, tools=[], params=GREEDY)
    await step(m.PrefillSuffix)
    assert (await engine.ask("And now of boats.", GREEDY)).text == whole.text
    assert (await step(m.EndSteps)).state_valid


@pytest.mark.parametrize("backend", ["scripted", "llama", pytest.param("openvino", marks=pytest.mark.model)])
async def test_a_cancelled_load_is_a_failed_load_and_the_worker_can_be_closed(
    engines: Engines, backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if backend == "scripted":
        import os

        from scripted_engine import script_environ

        path = tmp_path / "script.json"
        path.write_text('{"load_s": 30}')
        host = await engines.start(backend, environ={**os.environ, **script_environ(path)})
    else:
        path = request.getfixturevalue("converted_smollm2" if backend == "openvino" else "tiny")
        host = await engines.start(backend)
    await host.imported()
    message = m.Load(turn=host.next_turn(), identity=identity(path, backend), model={}, num_ctx=1024, threads=1)
    host.cancel(message.turn)  # before it is sent: it stops exactly this load at its first look
    with pytest.raises(ModelLoadFailed, match="cancelled"):
        await host.load(message, lambda fraction: None)
    assert not host.exited.is_set()
    await host.close(5)
    assert host.exited.is_set()


async def test_without_an_engine_everything_is_refused_by_its_type(engines: Engines, tmp_path: Path) -> None:
    host = await engines.start("none")
    await host.imported()
    load = m.Load(turn=host.next_turn(), identity=identity(tmp_path / "m.gguf", "none"), model={}, num_ctx=512)
    with pytest.raises(BackendUnavailable):
        await host.load(load, lambda fraction: None)
    jobs: list[tuple[type[Any], dict[str, Any]]] = [
        (m.Turn, {"messages": [user("hello")], "tools": [], "params": FEW}),
        (m.Warm, {"messages": [user("hello")], "tools": []}),
        (m.Fill, {"prefix": "a", "suffix": "b", "params": FEW}),
        (m.Embed, {"texts": ["a"]}),
        (m.EnsurePrefix, {"messages": [user("hello")], "tools": [], "params": FEW}),
    ]
    for job, fields in jobs:
        with pytest.raises(EngineFailed, match="no model is loaded"):
            await host.run(job(turn=host.next_turn(), **fields), lambda events: None)
    with pytest.raises((EngineFailed, BackendUnavailable)):
        await host.count(m.Count(turn=host.next_turn(), messages=None, tools=[], text=["a"]))
    trimmed = await host.run(m.TrimParked(turn=host.next_turn()), lambda events: None)
    assert trimmed.usage == Usage()
    account = await host.sample()
    assert account is not None
    assert (account.running, account.parked, account.lanes_used) == (None, 0, 0)
