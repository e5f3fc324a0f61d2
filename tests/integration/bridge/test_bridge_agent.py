"""A task on a small workspace: tool calls scripted, the files, cards, permissions and limits real."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.tools.builtin import PLAIN_SYSTEM
from bridge_fakes import Bench, Emit, FakeDaemon, bridge, conversation, result, row, running
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
def agent(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    (short_tmp / "work").mkdir()
    (short_tmp / "work" / "app.py").write_text("limit = 1\nprint(limit)\n")
    return Bench(short_tmp, row("alpha", tools=True))


def scripted(daemon: FakeDaemon, *rounds: list[tuple[str, dict[str, Any]]] | str) -> None:
    """Each round calls tools, or says its text and ends."""
    left = list(rounds)

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        del cancelled
        step = left.pop(0)
        if isinstance(step, str):
            emit(api.TextDelta(text=step))
            return result(params)
        calls = [
            api.ToolCall(id=f"c{len(left)}-{place}", name=name, arguments=json.dumps(arguments))
            for place, (name, arguments) in enumerate(step)
        ]
        return result(params, "tool_calls", tool_calls=calls)

    daemon.script = script
    daemon.answers["run/hold"] = api.Value()


def answering(*options: str) -> Callable[[str, dict[str, Any]], Awaitable[Any]]:
    left = list(options)

    async def answer(method: str, params: dict[str, Any]) -> Any:
        assert method == "session/request_permission"
        return {"outcome": {"outcome": "selected", "optionId": left.pop(0)}}

    return answer


async def begin(client: Any, bench: Bench, mode: str = "code", **capabilities: Any) -> str:
    await client.initialize(**capabilities)
    session: str = await client.new(str(bench.folder / "work"))
    await client.request("session/set_config_option", {"sessionId": session, "configId": "mode", "value": mode})
    return session


def cards(client: Any) -> dict[str, list[str]]:
    """The statuses of each card, by its title."""
    titles: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for _, update in client.updates:
        if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            title = titles.setdefault(update["toolCallId"], update.get("title", ""))
            status = update.get("status", "pending" if update["sessionUpdate"] == "tool_call" else "")
            if status:
                found.setdefault(title, []).append(status)
    return found


def cards_of(client: Any, update: dict[str, Any]) -> list[str]:
    """The titles that the card of this update had."""
    return [
        other["title"]
        for _, other in client.updates
        if "toolCallId" in update and other.get("toolCallId") == update["toolCallId"] and "title" in other
    ]


EDIT = ("edit_file", {"path": "app.py", "old": "limit = 1", "new": "limit = 2"})


async def test_a_whole_editing_task(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(
            daemon, [("read_file", {"path": "app.py"})], [EDIT], [("run_command", {"command": "cat app.py"})], "Done."
        )
        session = await begin(client, agent)
        client.answer = answering("allow_once", "allow_once")
        assert (await client.prompt(session, "raise the limit"))["stopReason"] == "end_turn"
        assert (agent.folder / "work" / "app.py").read_text() == "limit = 2\nprint(limit)\n"
        assert client.text() == "Done."
        assert cards(client) == {
            "Read app.py": ["pending", "in_progress", "completed"],
            "Edit app.py": ["pending", "in_progress", "completed"],
            "`cat app.py`": ["pending", "in_progress", "completed"],
        }
        assert [params["toolCall"]["title"] for _, params in client.asked] == ["Edit app.py", "`cat app.py`"]
        last = daemon.turns[-1].messages
        assert last[0]["role"] == "system"
        assert [message["role"] for message in last[1:]] == ["user", *["assistant", "tool"] * 3]
        assert "limit = 2" in last[-1]["content"]
        assert "run/hold" in daemon.methods


async def test_a_rejected_edit_is_reported_and_the_turn_goes_on(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [EDIT, ("read_file", {"path": "app.py"})], "As you wish.")
        session = await begin(client, agent)
        client.answer = answering("reject_once")
        assert (await client.prompt(session, "edit"))["stopReason"] == "end_turn"
        assert (agent.folder / "work" / "app.py").read_text().startswith("limit = 1")
        assert "rejected" in daemon.turns[-1].messages[-2]["content"]
        assert "limit = 1" in daemon.turns[-1].messages[-1]["content"], "one reject does not end the other calls"
        assert cards(client)["Edit app.py"] == ["pending", "failed"]


async def test_always_is_not_asked_again(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        again = ("edit_file", {"path": "app.py", "old": "limit = 2", "new": "limit = 3"})
        scripted(daemon, [EDIT], [again], "Done.")
        session = await begin(client, agent)
        client.answer = answering("allow_always")
        await client.prompt(session, "edit twice")
        assert len(client.asked) == 1
        assert "limit = 3" in (agent.folder / "work" / "app.py").read_text()


async def test_ask_mode_offers_and_does_nothing_that_changes(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [EDIT], "I may not.")
        session = await begin(client, agent, "ask")
        await client.prompt(session, "edit")
        offered = [tool["function"]["name"] for tool in daemon.turns[0].tools]
        assert "read_file" in offered
        assert not {"edit_file", "write_file", "run_command"} & set(offered)
        assert "ask mode" in daemon.turns[-1].messages[-1]["content"]
        assert client.asked == []


async def test_auto_mode_edits_unasked_and_asks_for_commands(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [EDIT, ("run_command", {"command": "true"})], "Done.")
        session = await begin(client, agent, "auto")
        client.answer = answering("allow_once")
        await client.prompt(session, "edit")
        assert [params["toolCall"]["title"] for _, params in client.asked] == ["`true`"]


async def test_the_same_call_again_and_again_ends_the_turn(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        again: list[tuple[str, dict[str, Any]]] = [("list_folder", {})]
        scripted(daemon, *[again] * 10)
        session = await begin(client, agent)
        assert (await client.prompt(session, "look"))["stopReason"] == "end_turn"
        assert len(daemon.turns) == 4
        assert "same arguments 4 times" in client.text()


async def test_too_many_rounds_are_said_truly(agent: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_bridge.turn.driver.MAX_REQUESTS", 3)
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, *[[("find_files", {"pattern": str(number)})] for number in range(5)])
        session = await begin(client, agent)
        assert (await client.prompt(session, "look"))["stopReason"] == "max_turn_requests"


async def test_an_unknown_tool_and_bad_arguments_are_reported(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [("fly", {}), ("read_file", {"path": "../x"}), ("read_file", {})], "Sorry.")
        session = await begin(client, agent)
        await client.prompt(session, "look")
        reported = [message["content"] for message in daemon.turns[-1].messages if message["role"] == "tool"]
        assert "there is no tool fly" in reported[0]
        assert "outside of the workspace" in reported[1]
        assert "`path` is needed" in reported[2]


async def test_a_cancel_while_the_user_is_asked(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [EDIT], "never")
        session = await begin(client, agent)
        asked = anyio.Event()

        async def never(method: str, params: dict[str, Any]) -> Any:
            asked.set()
            await anyio.sleep_forever()

        client.answer = never
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "edit"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await asked.wait()
            client.notify("session/cancel", {"sessionId": session})
        assert cards(client)["Edit app.py"][-1] == "failed"
        scripted(daemon, "Fine.")
        assert (await client.prompt(session, "go on"))["stopReason"] == "end_turn"
        roles = [message["role"] for message in daemon.turns[-1].messages[1:]]
        assert roles == ["user", "assistant", "tool", "user"]


async def test_the_editors_files_and_terminal_are_used(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [EDIT], [("run_command", {"command": "make test"})], "Done.")
        offers = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
        session = await begin(client, agent, "auto", **offers)
        buffer = {"text": "unsaved\nlimit = 1\n"}
        seen: list[str] = []

        async def answer(method: str, params: dict[str, Any]) -> Any:
            seen.append(method)
            if method == "fs/read_text_file":
                return {"content": buffer["text"]}
            if method == "fs/write_text_file":
                buffer["text"] = params["content"]
                return {}
            if method == "session/request_permission":
                return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            if method == "terminal/create":
                return {"terminalId": "T"}
            if method == "terminal/wait_for_exit":
                return {"exitCode": 2}
            if method == "terminal/output":
                return {"output": "1 failed", "truncated": False}
            return {}

        client.answer = answer
        await client.prompt(session, "edit and test")
        assert buffer["text"] == "unsaved\nlimit = 2\n"
        assert (agent.folder / "work" / "app.py").read_text().startswith("limit = 1"), (
            "the editor saves, not the bridge"
        )
        assert daemon.turns[-1].messages[-1]["content"] == "The command ended with 2.\n1 failed"
        assert seen[-1] == "terminal/release"
        shown = [update.get("content") for _, update in client.updates if "`make test`" in cards_of(client, update)]
        live = [{"type": "terminal", "terminalId": "T"}]
        assert shown[-2:] == [live, None], "the terminal is on the card while the command runs, and stays"
        client.updates.clear()
        opening = {"sessionId": session, "cwd": str(agent.folder / "work"), "mcpServers": []}
        await client.request("session/load", opening)
        assert "terminalId" not in str(client.updates), "a terminal of then is not there any more"
        assert "1 failed" in str([update for _, update in client.updates if update["sessionUpdate"] == "tool_call"])


async def test_an_editor_that_does_not_answer_is_reported_to_the_model(
    agent: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.faces.acp.editor.EDITOR_LIMIT_S", 0.05)
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, [("read_file", {"path": "app.py"})], "I cannot read it.")
        session = await begin(client, agent, fs={"readTextFile": True})
        taken_back = anyio.Event()

        async def never(method: str, params: dict[str, Any]) -> Any:
            try:
                await anyio.sleep_forever()
            finally:
                taken_back.set()

        client.answer = never
        assert (await client.prompt(session, "look"))["stopReason"] == "end_turn"
        assert "did not answer fs/read_text_file" in daemon.turns[-1].messages[-1]["content"]
        await taken_back.wait()


async def test_a_linked_file_is_read_when_it_is_in_the_workspace(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        scripted(daemon, "Seen.")
        session = await begin(client, agent)
        inside = {"type": "resource_link", "uri": (agent.folder / "work" / "app.py").as_uri(), "name": "app.py"}
        outside = {"type": "resource_link", "uri": "file:///etc/hostname", "name": "hostname"}
        text = {"type": "text", "text": "explain"}
        await client.request("session/prompt", {"sessionId": session, "prompt": [inside, outside, text]})
        content = daemon.turns[0].messages[-1]["content"]
        assert "limit = 1" in content
        assert "[hostname](file:///etc/hostname)" in content
        assert content.endswith("explain")


async def test_a_model_without_tools_is_offered_none(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        await client.prompt(await client.new(), "hi")
        assert daemon.turns[0].tools == []
        assert daemon.turns[0].messages[0] == {"role": "system", "content": PLAIN_SYSTEM}
        assert conversation(daemon.turns[0]) == [{"role": "user", "content": "hi"}]


async def test_an_engine_error_in_a_tool_round_is_typed(agent: Bench) -> None:
    from shared.errors import EngineFailed

    async with running(agent) as daemon, bridge(agent) as client:

        async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            raise EngineFailed(reason="worker gone", generation=3)

        daemon.script = script
        session = await begin(client, agent)
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind == "engine_failed"
        assert failed.value.generation == 3
