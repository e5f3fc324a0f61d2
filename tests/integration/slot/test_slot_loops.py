"""An answer that goes round in circles is ended, and can be gone on with: by a turn, by steps, by a fill."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from modeld.output.repetition import EVERY, WORDS
from modeld_process import Client, Modeld, Turn, write_models, write_script
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

SENTENCE = ["I'm here ", "to help ", "with ", "your ", "code. "]
LOOP: dict[str, Any] = {"pieces": SENTENCE, "endless": True}
THOUGHTS: dict[str, Any] = {"pieces": ["<think>", *(["Let me ", "see ", "that. "] * 400)], "when": "think"}
CALL: dict[str, Any] = {"pieces": ['<tool_call>{"name": "f", "arguments": {"x": "', *(SENTENCE * 200)], "when": "call"}
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{# <think></think> <tool_call></tool_call> #}"
)
ANY = api.Sampling()
BOUND = WORDS + EVERY


def looping(root: DataRoot, *replies: dict[str, Any], **environ: str) -> Modeld:
    write_models(root, "a")
    return Modeld(root, "scripted", **write_script(root.path, [LOOP, *replies]), **environ)


def text_of(turn: Turn) -> str:
    return "".join(event.text for event in turn.events if isinstance(event, api.TextDelta))


async def test_a_loop_ends_and_the_conversation_goes_on(data_root: DataRoot) -> None:
    async with looping(data_root, {"pieces": ["Paris"], "when": "capital"}) as modeld, modeld.client() as client:
        first = client.turn("a", "hi", params=ANY)
        ended = await first.end()
        assert (ended.finish_reason, ended.ended_by) == ("length", "repetition")
        assert ended.usage.generated <= BOUND
        assert text_of(first).startswith("".join(SENTENCE) * (WORDS // len(SENTENCE))), "nothing is taken back"
        reported = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": text_of(first)},
            {"role": "user", "content": "capital of France?"},
        ]
        after = client.turn("a", messages=reported, params=ANY)
        result = await after.end()
        assert (result.finish_reason, result.ended_by, text_of(after)) == ("stop", "", "Paris")
        assert result.usage.reused >= ended.usage.prefilled, "the lane was not given up"
        status = await client.status()
        assert status.state == "Ready"
    lines = [line for line in modeld.log().splitlines() if " turn " in line]
    assert [line.endswith("ended_by=repetition") for line in lines] == [True, False]


@pytest.mark.parametrize("off", ["turn", "setting"])
async def test_the_stop_can_be_switched_off(data_root: DataRoot, off: str) -> None:
    environ = {"MODELD_LOOP_STOP": "false"} if off == "setting" else {}
    params = api.Sampling(max_tokens=4 * BOUND, loop_stop=False if off == "turn" else None)
    async with looping(data_root, **environ) as modeld, modeld.client() as client:
        ended = await client.turn("a", params=params).end()
        assert (ended.finish_reason, ended.ended_by, ended.usage.generated) == ("length", "", 4 * BOUND)


async def test_a_turn_switches_it_on_where_the_setting_is_off(data_root: DataRoot) -> None:
    async with looping(data_root, MODELD_LOOP_STOP="false") as modeld, modeld.client() as client:
        ended = await client.turn("a", params=api.Sampling(loop_stop=True)).end()
        assert ended.ended_by == "repetition"


async def test_what_the_request_asks_for_comes_whole(data_root: DataRoot) -> None:
    async with looping(data_root) as modeld, modeld.client() as client:
        asked = "Say I'm here to help with your code. 100 times"
        ended = await client.turn("a", asked, params=api.Sampling(max_tokens=500)).end()
        assert (ended.usage.generated, ended.ended_by) == (500, "")


async def test_thoughts_and_calls_end_too_and_a_cut_call_is_none(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    script = write_script(data_root.path, [LOOP, THOUGHTS, CALL], template=THINKING)
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}
    async with Modeld(data_root, "scripted", **script) as modeld, modeld.client() as client:
        thought = await client.turn("a", "think", params=ANY).end()
        called = await client.turn("a", "call", params=ANY, tools=[tool]).end()
        for ended in (thought, called):
            assert (ended.finish_reason, ended.ended_by) == ("length", "repetition")
            assert ended.usage.generated <= BOUND + 1
        assert called.tool_calls == []


async def test_steps_and_fills_follow_the_same_rule(data_root: DataRoot) -> None:
    async with looping(data_root) as modeld, modeld.client() as client:
        handle = (await client.call("session/open", api.OpenParams(model="a", allow_load=True), api.OpenResult)).handle
        turn = (await client.call("turn/begin", api.BeginParams(handle=handle), api.BeginResult)).turn
        asked = api.PrefixParams(turn=turn, messages=[{"role": "user", "content": "hi"}])
        await client.call("session/ensure_prefix", asked, api.PrefixResult)
        await client.call("session/prefill_suffix", api.StepParams(turn=turn), api.Usage)
        ended = await client.call("session/decode", api.StepParams(turn=turn), api.TurnResult)
        assert ended.ended_by == "repetition"
        assert ended.usage.generated <= BOUND
        filled = await fill(client, ANY)
        assert filled.usage.generated <= BOUND
        assert (await fill(client, api.Sampling(max_tokens=2 * BOUND, loop_stop=False))).usage.generated == 2 * BOUND


async def test_a_base_model_ends_at_the_mark_that_it_writes_as_text(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    reply = {"pieces": ["Hello", "<|im", "_end|>", "\n", "more "], "endless": True}
    bare = write_script(data_root.path, [reply], template="")
    async with Modeld(data_root, "scripted", **bare) as modeld, modeld.client() as client:
        turn = client.turn("a", params=ANY)
        assert (await turn.end()).finish_reason == "stop"
        assert text_of(turn) == "Hello"
    own = write_script(data_root.path, [reply])
    async with Modeld(data_root, "scripted", **own) as modeld, modeld.client() as client:
        turn = client.turn("a", params=api.Sampling(max_tokens=5))
        assert (await turn.end()).finish_reason == "length"
        assert "<|im_end|>" in text_of(turn), "the control: with a template of its own it is text"


async def fill(client: Client, params: api.Sampling) -> api.FillResult:
    return await client.call(
        "completion/fill", api.FillParams(model="a", prefix="x", suffix="y", params=params), api.FillResult
    )


async def test_an_earlier_client_reads_the_end_as_one_at_a_bound(data_root: DataRoot) -> None:
    async with looping(data_root) as modeld, modeld.client() as client:
        params = api.TurnParams(
            model="a", messages=[{"role": "user", "content": "hi"}], allow_load=True, fence=client.hello.instance
        )
        with anyio.fail_after(30):
            raw: dict[str, Any] = await client.peer.request("session/turn", params, dict[str, Any])
        assert raw["finish_reason"] == "length", "a value that every release knows"
        del raw["ended_by"]
        assert msgspec.convert(raw, api.TurnResult).finish_reason == "length"
