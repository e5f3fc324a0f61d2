"""The life of conversations: listed, loaded, resumed, closed, deleted, taken over; and what is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from bridge_fakes import Bench, bridge, conversation, row, running, says
from shared.errors import ModeldError

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


def opening(session: str, cwd: str = "/tmp") -> dict[str, Any]:
    return {"sessionId": session, "cwd": cwd, "mcpServers": []}


def current(answer: dict[str, Any], option: str) -> str:
    return str(next(found["currentValue"] for found in answer["configOptions"] if found["id"] == option))


async def test_load_replays_everything_before_its_answer(bench: Bench) -> None:
    async with running(bench) as daemon:
        async with bridge(bench) as client:
            await client.initialize()
            session = await client.new()
            await client.prompt(session, "hello there")
        async with bridge(bench) as client:
            await client.initialize()
            answer = await client.request("session/load", opening(session))
            shown = [(update["sessionUpdate"], update["content"]["text"]) for _, update in client.updates]
            assert shown == [("user_message_chunk", "hello there"), ("agent_message_chunk", "Hello world")]
            assert current(answer, "model") == "alpha"
            daemon.script = says("more")
            await client.prompt(session, "go on")
            sent = [message["content"] for message in conversation(daemon.turns[-1])]
            assert sent == ["hello there", "Hello world", "go on"]


async def test_resume_shows_nothing_again(bench: Bench) -> None:
    async with running(bench) as daemon:
        async with bridge(bench) as client:
            await client.initialize()
            session = await client.new()
            await client.prompt(session, "hello")
        async with bridge(bench) as client:
            await client.initialize()
            await client.request("session/resume", opening(session))
            assert client.updates == []
            await client.prompt(session, "go on")
            assert len(conversation(daemon.turns[-1])) == 3


async def test_picks_survive_restarts_by_conversation_and_workspace(bench: Bench) -> None:
    async with running(bench):
        async with bridge(bench) as client:
            await client.initialize()
            session = await client.new("/tmp")
            for option, value in (("model", "beta"), ("mode", "auto")):
                setting = {"sessionId": session, "configId": option, "value": value}
                await client.request("session/set_config_option", setting)
        async with bridge(bench) as client:
            await client.initialize()
            loaded = await client.request("session/load", opening(session))
            assert (current(loaded, "model"), current(loaded, "mode")) == ("beta", "auto")
            same = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
            other = await client.request("session/new", {"cwd": "/var", "mcpServers": []})
            assert (current(same, "model"), current(other, "model")) == ("beta", "alpha")


async def test_the_list_is_paged_filtered_and_newest_first(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        made = [await client.new("/tmp" if number % 2 else "/var") for number in range(60)]
        first = await client.request("session/list")
        second = await client.request("session/list", {"cursor": first["nextCursor"]})
        listed = [info["sessionId"] for page in (first, second) for info in page["sessions"]]
        assert len(first["sessions"]) == 50
        assert "nextCursor" not in second
        assert sorted(listed) == sorted(made)
        filtered = await client.request("session/list", {"cwd": "/var"})
        assert {info["cwd"] for info in filtered["sessions"]} == {"/var"}
        with pytest.raises(ModeldError) as refused:
            await client.request("session/list", {"cursor": "nonsense"})
        assert refused.value.code == -32602


async def test_titles_come_from_the_first_message(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "Fix the bug")
        (info,) = (await client.request("session/list"))["sessions"]
        assert info["title"] == "Fix the bug"
        assert info["updatedAt"].endswith("Z")
        titles = [update["title"] for _, update in client.updates if update["sessionUpdate"] == "session_info_update"]
        assert titles == ["Fix the bug"]


async def test_closed_and_deleted(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "hello")
        await client.request("session/close", {"sessionId": session})
        with pytest.raises(ModeldError) as closed:
            await client.prompt(session, "again")
        assert closed.value.code == -32002
        await client.request("session/load", opening(session))
        await client.request("session/delete", {"sessionId": session})
        await client.request("session/delete", {"sessionId": session})
        with pytest.raises(ModeldError) as deleted:
            await client.request("session/load", opening(session))
        assert deleted.value.code == -32002


async def test_one_writer_per_conversation(bench: Bench) -> None:
    async with running(bench), bridge(bench, pid=1) as first:
        await first.initialize()
        session = await first.new()
        await first.prompt(session, "mine")
        async with bridge(bench, pid=2) as second:
            await second.initialize()
            loaded = await second.request("session/load", opening(session))
            assert loaded["_meta"] == {"modeld.openIn": "tester"}, "it is reported who has it"
            assert "mine" in str(second.updates), "it can be read"
            with pytest.raises(ModeldError) as busy:
                await second.prompt(session, "also mine")
            assert busy.value.kind == "conversation_busy"
            assert busy.value.opened_in == "tester"
            await second.request("_modeld/take_over", {"sessionId": session})
            assert (await second.prompt(session, "now mine"))["stopReason"] == "end_turn"
            with pytest.raises(ModeldError) as lost:
                await first.prompt(session, "still mine?")
            assert lost.value.kind == "conversation_busy"


async def test_a_user_takes_a_conversation_over_by_a_command(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench, pid=1) as first:
        await first.initialize()
        session = await first.new()
        await first.prompt(session, "one")
        async with bridge(bench, pid=2) as second:
            await second.initialize()
            await second.request("session/load", opening(session))
            await first.prompt(session, "two")
            with pytest.raises(ModeldError) as busy:
                await second.prompt(session, "three")
            assert "open in tester; go on there, or send /takeover to go on here" in busy.value.message
            assert (await second.prompt(session, "/takeover"))["stopReason"] == "end_turn"
            await second.prompt(session, "three")
            assert [message["content"] for message in conversation(daemon.turns[-1])][::2] == ["one", "two", "three"]
            with pytest.raises(ModeldError):
                await first.prompt(session, "four")


async def test_an_older_client_and_a_newer_one(bench: Bench) -> None:
    async with bridge(bench) as client:
        for params in (
            {"protocolVersion": 99},
            {"protocolVersion": 0, "clientCapabilities": {"fs": None, "terminal": None}},
            {
                "protocolVersion": 2,
                "capabilities": {"fs": {"readTextFile": True}},
                "info": {"name": "x", "version": "2"},
            },
        ):
            assert (await client.request("initialize", params))["protocolVersion"] == 1


async def test_auth_has_a_method_and_needs_none(bench: Bench) -> None:
    async with bridge(bench) as client:
        answer = await client.initialize()
        await client.request("authenticate", {"methodId": answer["authMethods"][0]["id"]})
        await client.request("logout")
        with pytest.raises(ModeldError) as refused:
            await client.request("authenticate", {"methodId": "other"})
        assert refused.value.code == -32602


async def test_modes_both_ways(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await client.prompt(session, "hi")
        await client.request("session/set_mode", {"sessionId": session, "modeId": "ask"})
        await client.wait_for(lambda: "current_mode_update" in client.kinds())
        assert "config_option_update" in client.kinds()
        with pytest.raises(ModeldError) as refused:
            await client.request("session/set_mode", {"sessionId": session, "modeId": "wild"})
        assert "wild" in refused.value.message


async def test_thinking_is_an_option_of_models_that_think(bench: Bench) -> None:
    from acp_bridge.models.view import Advertised

    bench.inventory.advertised = Advertised(rows=(row("alpha", thinking=True), row("beta")))
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        setting = {"sessionId": session, "configId": "thought_level", "value": "off"}
        answer = await client.request("session/set_config_option", setting)
        assert current(answer, "thought_level") == "off"
        await client.prompt(session, "hi")
        assert daemon.turns[0].params.thinking == "off"
        answer = await client.request(
            "session/set_config_option", {"sessionId": session, "configId": "model", "value": "beta"}
        )
        assert [option["id"] for option in answer["configOptions"]] == ["model", "mode"]
        await client.prompt(session, "hi")
        assert daemon.turns[1].params.thinking is None


async def test_a_model_that_makes_embeddings_answers_nobody_by_itself(bench: Bench) -> None:
    from acp_bridge.models.view import Advertised

    bench.inventory.advertised = Advertised(rows=(row("alpha", embedding_only=True), row("beta")))
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        await client.prompt(await client.new(), "hi")
        assert daemon.turns[0].model == "beta"


async def test_an_error_that_names_what_was_asked_for_makes_no_link_of_it(bench: Bench) -> None:
    """Editors show the message where they read Markdown."""
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        wanted = {"sessionId": session, "configId": "model", "value": "[Fix it](command:run)"}
        with pytest.raises(ModeldError) as refused:
            await client.request("session/set_config_option", wanted)
        assert "Fix it" in refused.value.message
        assert "[Fix it](" not in refused.value.message
