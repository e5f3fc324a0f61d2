"""What a message may hold and what a model gets: images, refusals, the system message, tools on and off, plans."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from acp_bridge.models.view import Advertised
from acp_bridge.tools.builtin import PLAIN_SYSTEM
from bridge_fakes import Bench, Emit, active, bridge, conversation, opened, result, row, running, says
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

IMAGE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
LOOK = {"type": "text", "text": "what is this?"}


async def send(client: Any, session: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await client.request("session/prompt", {"sessionId": session, "prompt": list(blocks)})
    return answer


def with_vision(name: str) -> api.ActiveModel:
    return msgspec.structs.replace(active(name), capabilities={"vision": True})


async def test_an_image_goes_to_a_model_with_vision(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(rows=(row("alpha", vision=True),))
    async with running(bench) as daemon, bridge(bench) as client:
        daemon.push(active=with_vision("alpha"))
        assert (await client.initialize())["agentCapabilities"]["promptCapabilities"]["image"] is True
        session = await client.new()
        await client.wait_for(lambda: bench.core.daemon.status is not None)
        await send(client, session, IMAGE, LOOK)
        (message,) = conversation(daemon.turns[0])
        assert [part["type"] for part in message["content"]] == ["image_url", "text"]
        assert message["content"][0]["image_url"]["url"] == "data:image/png;base64,aGVsbG8="
        assert "left out" not in client.text()


async def test_an_image_loads_a_model_that_may_see_to_find_out(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(rows=(row("alpha", vision=True),))
    async with running(bench) as daemon, bridge(bench) as client:

        async def load(call: Any) -> api.LoadResult:
            daemon.push(active=with_vision("alpha"))
            return api.LoadResult(active=with_vision("alpha"), generation=1, loaded=True, load_seconds=0.1)

        daemon.answers["model/load"] = load
        await client.initialize()
        await send(client, await client.new(), IMAGE, LOOK)
        assert isinstance(conversation(daemon.turns[0])[0]["content"], list)


async def test_an_image_to_a_model_without_vision_is_left_out_and_said(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        assert (await send(client, session, IMAGE, IMAGE, LOOK))["stopReason"] == "end_turn"
        assert "The 2 images are left out: alpha does not see images." in client.text()
        (message,) = conversation(daemon.turns[0])
        assert message["content"].endswith("what is this?")
        assert "cannot see" in message["content"], "the model knows that there was one"
        assert "aGVsbG8" not in str(daemon.turns[0].messages)
        client.updates.clear()
        await client.request("session/load", {"sessionId": session, "cwd": "/tmp", "mcpServers": []})
        kinds = [update["content"]["type"] for _, update in client.updates if "user" in update["sessionUpdate"]]
        assert kinds == ["image", "image", "text"], "the user's view keeps it"


async def test_an_image_alone_is_a_message(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        assert (await send(client, await client.new(), IMAGE))["stopReason"] == "end_turn"


async def test_audio_is_beyond_what_was_offered_and_refused_by_name(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        with pytest.raises(ModeldError) as refused:
            await send(client, await client.new(), LOOK, {"type": "audio", "data": "", "mimeType": "audio/wav"})
        assert refused.value.code == -32602
        assert "prompt[1].type" in str(refused.value.data)


async def test_embedded_text_and_binary_resources(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        text = {"type": "resource", "resource": {"uri": "file:///w/a.py", "text": "x = 1"}}
        binary = {"type": "resource", "resource": {"uri": "file:///w/a.bin", "blob": "AAAA"}}
        await send(client, await client.new(), text, binary, LOOK)
        (message,) = conversation(daemon.turns[0])
        assert "x = 1" in message["content"]
        assert "a.bin (binary)" in message["content"]


async def test_what_the_editor_says_of_its_blocks_comes_back_in_a_replay(bench: Bench) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "look", "_meta": {"zed.dev/mention": 1}, "annotations": {"priority": 1}},
        {
            "type": "resource_link",
            "uri": "https://x.org/a",
            "name": "a",
            "mimeType": "text/html",
            "size": 3,
            "title": "A",
        },
        {"type": "resource", "resource": {"uri": "file:///w/a.py", "text": "x", "mimeType": "text/x-python"}},
        {**IMAGE, "uri": "file:///w/a.png"},
    ]
    async with running(bench), opened(bench) as (client, session):
        await send(client, session, *blocks)
        client.updates.clear()
        await client.request("session/load", {"sessionId": session, "cwd": "/tmp", "mcpServers": []})
        shown = [update["content"] for _, update in client.updates if update["sessionUpdate"] == "user_message_chunk"]
        assert shown == blocks


async def test_large_files_go_in_by_excerpt_and_that_is_said(bench: Bench) -> None:
    work = bench.folder / "work"
    work.mkdir()
    (work / "big.txt").write_text("BEGIN " + "x" * (3 << 20) + " END")
    link = {"type": "resource_link", "uri": (work / "big.txt").as_uri(), "name": "big.txt"}
    pasted = {
        "type": "resource",
        "resource": {"uri": "file:///w/pasted%20one.txt", "text": "HEAD " + "y" * 50_000 + " TAIL"},
    }
    async with running(bench) as daemon, opened(bench) as (client, _):
        session = await client.new(str(work))
        await send(client, session, link, pasted, LOOK)
        content = conversation(daemon.turns[0])[0]["content"]
        assert len(content) < 20_000
        for word in ("BEGIN", "END", "HEAD", "TAIL", "left out", "what is this?"):
            assert word in content
        assert "big.txt, pasted one.txt: too large for this model's window" in client.text()


async def test_a_larger_window_takes_a_larger_file(bench: Bench) -> None:
    pasted = {"type": "resource", "resource": {"uri": "file:///w/a.txt", "text": "y" * 50_000}}
    async with running(bench) as daemon, opened(bench) as (client, session):
        daemon.push(active=active("alpha", 131_072))
        await client.wait_for(
            lambda: bench.core.daemon.status is not None and bench.core.daemon.status.active is not None
        )
        await send(client, session, pasted, LOOK)
        assert "y" * 50_000 in conversation(daemon.turns[0])[0]["content"]
        assert "too large" not in client.text()


async def test_a_refusal_is_reported_and_taken_out_of_what_follows(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "first")

        async def refuses(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            emit(api.TextDelta(text="No."))
            return result(params, "refusal")

        daemon.script = refuses
        assert (await client.prompt(session, "second"))["stopReason"] == "refusal"
        daemon.script = says("fine")
        await client.prompt(session, "third")
        assert [message["content"] for message in conversation(daemon.turns[-1])] == ["first", "Hello world", "third"]


async def test_a_cut_answer_is_max_tokens(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()

        async def cut(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            return result(params, "length")

        daemon.script = cut
        assert (await client.prompt(session, "hi"))["stopReason"] == "max_tokens"


# --- tools or none -------------------------------------------------------------------------------

BOOLEANS: dict[str, Any] = {"session": {"configOptions": {"boolean": {}}}}


def tools_option(answer: dict[str, Any]) -> list[bool]:
    return [option["currentValue"] for option in answer["configOptions"] if option["id"] == "tools"]


async def test_a_large_model_whose_template_knows_no_tools_is_taught_them(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(
        rows=(row("alpha", parameters=4_000_000_000), row("beta", parameters=10**8))
    )
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "hi")
        assert "edit_file" in [tool["function"]["name"] for tool in daemon.turns[0].tools]
        await client.request("session/set_config_option", {"sessionId": session, "configId": "model", "value": "beta"})
        await client.prompt(session, "hi")
        assert daemon.turns[1].tools == []
        assert daemon.turns[1].messages[0]["content"] == PLAIN_SYSTEM


async def test_tools_can_be_switched_where_the_editor_takes_booleans(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(rows=(row("alpha", tools=True), row("beta")))
    setting: dict[str, Any]
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize(**BOOLEANS)
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        session = made["sessionId"]
        setting = {"sessionId": session, "configId": "tools", "type": "boolean", "value": False}
        assert tools_option(await client.request("session/set_config_option", setting)) == [False]
        await client.prompt(session, "hi")
        assert daemon.turns[0].tools == []
        with pytest.raises(ModeldError):
            await client.request("session/set_config_option", {**setting, "value": "off"})
        async with bridge(bench, pid=2) as other:
            await other.initialize(**BOOLEANS)
            opening = {"sessionId": session, "cwd": "/tmp", "mcpServers": []}
            assert tools_option(await other.request("session/load", opening)) == [False], "it is remembered"


async def test_an_editor_without_booleans_sees_none(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize(session={"configOptions": None})
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        assert tools_option(made) == []
        setting = {"sessionId": made["sessionId"], "configId": "tools", "type": "boolean", "value": False}
        with pytest.raises(ModeldError) as refused:
            await client.request("session/set_config_option", setting)
        assert "tools" in refused.value.message


async def test_a_plan_of_the_model_is_shown_and_replayed(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(rows=(row("alpha", tools=True),))
    async with running(bench) as daemon, bridge(bench) as client:
        call = api.ToolCall(id="1", name="update_plan", arguments='{"steps": [{"step": "look", "status": "pending"}]}')
        rounds = [[call], []]
        daemon.answers["run/hold"] = api.Value()

        async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            calls = rounds.pop(0)
            return result(params, "tool_calls" if calls else "stop", tool_calls=calls)

        daemon.script = script
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "go")
        shown = {"sessionUpdate": "plan", "entries": [{"content": "look", "priority": "medium", "status": "pending"}]}
        assert shown in [update for _, update in client.updates]
        client.updates.clear()
        await client.request("session/load", {"sessionId": session, "cwd": "/tmp", "mcpServers": []})
        assert shown in [update for _, update in client.updates]
