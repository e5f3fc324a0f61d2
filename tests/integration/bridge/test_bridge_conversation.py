"""A whole first conversation over the protocol, against a daemon that answers from a script."""

from __future__ import annotations

import anyio
import pytest

from acp_bridge.conversations.events import Said
from bridge_fakes import Bench, Emit, bound_pages, bridge, conversation, result, running, until_cancelled
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


async def test_a_first_conversation(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        answer = await client.initialize()
        assert answer["protocolVersion"] == 1
        assert answer["authMethods"]
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        assert client.updates == []
        model = next(option for option in made["configOptions"] if option["category"] == "model")
        offered = [choice["value"] for group in model["options"] for choice in group["options"]]
        assert offered == ["alpha", "beta"]
        assert model["currentValue"] in offered
        done = await client.prompt(made["sessionId"], "hi")
        assert done["stopReason"] == "end_turn"
        assert client.text() == "Hello world"
        assert done["_meta"]["modeld.turn"]["generated"] == 3
        assert daemon.turns[0].model == "alpha"
        assert conversation(daemon.turns[0]) == [{"role": "user", "content": "hi"}]
        assert {"available_commands_update", "usage_update", "session_info_update"} <= set(client.kinds())


async def test_the_second_turn_carries_the_first(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "hi")
        await client.prompt(session, "again")
        assert [message["content"] for message in conversation(daemon.turns[1])] == ["hi", "Hello world", "again"]


async def test_a_cancel_ends_the_turn_as_cancelled(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        daemon.script = until_cancelled
        await client.initialize()
        session = await client.new()
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "go"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await client.wait_for(lambda: client.text() == "one")
            client.notify("session/cancel", {"sessionId": session})


async def test_an_idle_cancel_does_not_stick(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        client.notify("session/cancel", {"sessionId": session})
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"


async def test_the_picker_sets_what_answers(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        setting = {"sessionId": session, "configId": "model", "value": "beta"}
        answer = await client.request("session/set_config_option", setting)
        assert answer["configOptions"][0]["currentValue"] == "beta"
        await client.prompt(session, "hi")
        assert daemon.turns[0].model == "beta"


async def test_what_is_not_offered_is_refused_by_name(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as refused:
            await client.request(
                "session/set_config_option", {"sessionId": session, "configId": "model", "value": "alpa"}
            )
        assert refused.value.code == -32602
        assert "alpa" in refused.value.message


async def test_an_unknown_session(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        with pytest.raises(ModeldError) as refused:
            await client.prompt("nobody", "hi")
        assert refused.value.code == -32002


async def test_without_a_daemon_the_prompt_says_so(bench: Bench) -> None:
    async with bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "daemon_not_running"
        assert "modeld start" in refused.value.message


async def test_an_answer_that_could_not_be_saved_says_so_and_is_saved_later(bench: Bench) -> None:
    async def fills_the_disk(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        await bound_pages(bench.core.store, 0)
        emit(api.TextDelta(text="long " * 5000))
        return result(params, "stop")

    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        usual, daemon.script = daemon.script, fills_the_disk
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert "Not saved yet: no space left" in client.text()
        await client.new()
        await bound_pages(bench.core.store, 1000)
        daemon.script = usual
        await client.prompt(session, "again")
        assert client.text().count("Not saved yet") == 1
        saved = await bench.core.store.load(session)
        assert saved is not None
        said = [event.text[:9] for event in saved.events if isinstance(event, Said)]
        assert said == ["long long", "Hello wor"]
