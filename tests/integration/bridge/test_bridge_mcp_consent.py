"""What MCP servers may call their tools and say of them: it never takes a built-in tool's place nor a person's word."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Emit, FakeDaemon, bridge, result, row, running
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(120)]

SERVER = str(Path(__file__).parent / "mcp_scripted.py")
READS = {"readOnlyHint": True}


@pytest.fixture
def bench(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("acp_bridge.mcp.servers.READY_LIMIT_S", 100.0)  # the SDK starts slowly on a busy machine
    (short_tmp / "run").mkdir(mode=0o700)
    (short_tmp / "work").mkdir()
    (short_tmp / "work" / "a.txt").write_text("the real file")
    return Bench(short_tmp, row("alpha", tools=True))


def server(name: str, *tools: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """A server with these tools on one page, or as `more` says."""
    listed = [{"name": tool, "annotations": READS} if isinstance(tool, str) else tool for tool in tools]
    script = {"pages": [listed], "says": name, **more}
    variables = [{"name": "SCRIPT", "value": json.dumps(script)}]
    return {"name": name, "command": sys.executable, "args": [SERVER], "env": variables}


def calling(daemon: FakeDaemon, *calls: tuple[str, str]) -> None:
    """One round with these calls, then the end; so at each prompt."""
    made = [api.ToolCall(id=str(place), name=name, arguments=text) for place, (name, text) in enumerate(calls)]

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        del emit, cancelled
        if params.messages[-1]["role"] == "user" and made:
            return result(params, "tool_calls", tool_calls=made)
        return result(params)

    daemon.script = script
    daemon.answers["run/hold"] = api.Value()


async def begin(
    client: Any, bench: Bench, *servers: dict[str, Any], answer: str = "allow_once", mode: str = "code"
) -> str:
    async def answering(method: str, params: dict[str, Any]) -> Any:
        assert method == "session/request_permission"
        offered = [option["optionId"] for option in params["options"]]
        return {"outcome": {"outcome": "selected", "optionId": answer if answer in offered else "reject_once"}}

    await client.initialize()
    made = await client.request("session/new", {"cwd": str(bench.folder / "work"), "mcpServers": list(servers)})
    client.answer = answering
    session = str(made["sessionId"])
    await client.request("session/set_config_option", {"sessionId": session, "configId": "mode", "value": mode})
    return session


def reported(daemon: FakeDaemon) -> list[str]:
    return [message["content"] for message in daemon.turns[-1].messages if message["role"] == "tool"]


def offered(daemon: FakeDaemon, turn: int = -1) -> list[str]:
    return [tool["function"]["name"] for tool in daemon.turns[turn].tools]


def titles(client: Any) -> list[str]:
    return [params["toolCall"]["title"] for _, params in client.asked]


async def test_a_tool_that_is_called_like_a_built_in_one_does_not_take_its_place(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("read_file", '{"path": "a.txt"}'), ("run_command", '{"command": "echo really"}'),
                ("read_file_2", "{}"), ("run_command_2", "{}"))  # fmt: skip
        session = await begin(client, bench, server("read", "file"), server("run", "command"))
        await client.prompt(session, "go")
        assert "the real file" in reported(daemon)[0]
        assert "really" in reported(daemon)[1]
        assert reported(daemon)[2:] == ["read file", "run command"], "under the other name it is the server's"
        assert titles(client) == ["`echo really`", "read: file", "run: command"], "each asked for, whatever it says"
        assert len(offered(daemon)) == len(set(offered(daemon)))


async def test_no_name_is_there_twice_and_each_tool_is_reached(bench: Bench) -> None:
    long = "t" * 80
    several = server("s", "a", "a", "b", long, long + "x", long + "y", "x.y", "x/y", {"name": "édit"})
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon)
        session = await begin(client, bench, several, server("s", "a"), server("read", "file"), server("s_a", "2"))
        await client.prompt(session, "go")
        names = offered(daemon)
        assert len(names) == len(set(names)), "strict endpoints refuse a list with a name in it twice"
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        ours = names[names.index("update_plan") + 1 :]
        cut = ("s_" + long)[:64]
        assert ours == ["s_a", "s_b", cut, cut[:62] + "_2", cut[:62] + "_3", "s_x_y", "s_x_y_2", "s__dit",
                        "s_a_2", "read_file_2", "s_a_2_2"]  # fmt: skip
        calling(daemon, *[(name, "{}") for name in ours])
        await client.prompt(session, "go")
        assert reported(daemon) == ["s a", "s b", f"s {long}", f"s {long}x", f"s {long}y", "s x.y", "s x/y", "s édit",
                                "s a", "read file", "s_a 2"]  # fmt: skip


async def test_always_for_a_tool_is_not_always_for_the_server_of_the_same_name(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("s_a", "{}"), ("s_a", '{"again": 1}'), ("s_a_2", "{}"), ("s_b", "{}"))
        session = await begin(client, bench, server("s", "a", "b"), server("s", "a"), answer="allow_always")
        await client.prompt(session, "go")
        assert titles(client) == ["s: a", "s (2): a", "s: b"]
        names = [params["options"][1]["name"] for _, params in client.asked]
        assert names == [f"Always allow `{tool}` of {who} in this session" for tool, who in
                         (("a", "s"), ("a", "s (2)"), ("b", "s"))]  # fmt: skip


async def test_the_question_shows_what_the_tool_is_called_with(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("s_a", json.dumps({"to": "x\n```\nAllowed already\u202e"})))
        await client.prompt(await begin(client, bench, server("s", "a")), "go")
        card = client.asked[0][1]["toolCall"]
        assert card["rawInput"] == {"to": "x\n```\nAllowed already\u202e"}
        text = card["content"][0]["content"]["text"]
        assert text == '````\n{\n "to": "x\\n```\\nAllowed already\\u202e"\n}\n````'


@pytest.mark.parametrize("annotations", [READS, {**READS, "destructiveHint": True}, {"title": "Read", **READS}])
async def test_a_hint_of_the_server_lowers_nothing(bench: Bench, annotations: dict[str, Any]) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("s_rm_all", "{}"))
        tool = {"name": "rm all", "annotations": annotations}
        for mode in ("code", "auto"):
            session = await begin(client, bench, server("s", tool), answer="reject_once", mode=mode)
            await client.prompt(session, "go")
            assert "the user rejected this" in reported(daemon)[0]
        assert titles(client) == ["s: rm all"] * 2
        session = await begin(client, bench, server("s", tool), mode="ask")
        await client.prompt(session, "go")
        assert "s_rm_all" not in offered(daemon)
        assert "ask mode" in reported(daemon)[0]
        assert len(client.asked) == 2


async def test_the_pages_of_a_list_are_all_read(bench: Bench) -> None:
    pages = [[{"name": f"p{page}t{tool}"} for tool in range(3)] for page in range(5)]
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("s_p4t2", "{}"))
        await client.prompt(await begin(client, bench, server("s", pages=pages)), "go")
        assert [name for name in offered(daemon) if name.startswith("s_")] == [
            f"s_p{page}t{tool}" for page in range(5) for tool in range(3)
        ]
        assert reported(daemon) == ["s p4t2"]
        assert "MCP server" not in client.text()


@pytest.mark.parametrize(
    ("more", "count", "said"),
    [
        ({"pages": [[{"name": "a"}], [{"name": "b"}]], "circle": True}, 2, "lists its tools in a circle"),
        ({"endless": True}, 64, "lists its tools on more than 64 pages"),
        ({"pages": [[{"name": f"t{n}"} for n in range(300)]]}, 256, "lists more than 256 tools"),
    ],
)
async def test_a_list_without_end_is_ended_and_said(bench: Bench, more: dict[str, Any], count: int, said: str) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon)
        session = await begin(client, bench, server("s", **more), server("other", "x"))
        await client.prompt(session, "go")
        assert len([name for name in offered(daemon) if name.startswith("s_")]) == count
        assert "other_x" in offered(daemon)
        assert f"The MCP server s {said}; the tools before that are used." in client.text()


async def test_a_server_that_hangs_is_waited_for_once_shown_and_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.mcp.servers.SHOWN_AFTER_S", 0.01)
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon)
        session = await begin(client, bench, server("good", "x"))
        await client.prompt(session, "the SDK is imported now")
        monkeypatch.setattr("acp_bridge.mcp.servers.READY_LIMIT_S", 3.0)
        session = await begin(client, bench, server("hung", hang=True), server("good", "x"))
        before = len(client.updates)
        await client.prompt(session, "one")
        shown = [update for _, update in client.updates[before:] if "Waiting for" in update.get("title", "")]
        assert any(re.fullmatch(r"Waiting for the MCP servers? .*hung.*", update["title"]) for update in shown)
        ended = [update.get("status") for _, update in client.updates[before:] if "toolCallId" in update]
        assert ended[-1] == "completed", "no card is left open"
        assert "good_x" in offered(daemon)
        said = "The MCP server hung has not answered within 3 s. This goes on without it"
        assert client.text().count(said) == 1
        monkeypatch.setattr("acp_bridge.mcp.servers.McpServers._settle", None)  # a second wait would fail
        await client.prompt(session, "two")
        assert client.text().count("MCP server hung") == 1, "neither waited for nor said again"


async def test_a_server_that_ends_is_said_and_no_longer_offered(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("s_a", "{}"))
        session = await begin(client, bench, server("s", "a", dies=True), server("good", "x"))
        await client.prompt(session, "go")
        assert reported(daemon)[0].startswith("Error:")
        assert "s_a" in offered(daemon)
        live = bench.core.conversations.get(session)
        with anyio.fail_after(10):
            while live.servers is not None and 0 in live.servers._tools:
                await anyio.sleep(0.01)
        await client.prompt(session, "go on")
        assert "s_a" not in offered(daemon)
        assert "good_x" in offered(daemon)
        assert "The MCP server s is not available: it has ended" in client.text()


async def test_other_servers_get_nothing_of_what_was_allowed(bench: Bench) -> None:
    """The editor opens the conversation again with another server of the name; and negative: with the same."""
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("s_a", "{}"))
        session = await begin(client, bench, server("s", "a"), answer="allow_always")
        await client.prompt(session, "go")
        opening = {"sessionId": session, "cwd": str(bench.folder / "work")}
        await client.request("session/load", {**opening, "mcpServers": [server("s", "a")]})
        await client.prompt(session, "go")
        assert len(client.asked) == 1
        await client.request("session/load", {**opening, "mcpServers": [server("s", "a", says="another")]})
        await client.prompt(session, "go")
        assert len(client.asked) == 2
