"""MCP servers of a session: real ones, over stdio and over HTTP on loopback; a failing one is said, no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from bridge_fakes import Bench, Emit, FakeDaemon, bridge, result, row, running
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(120)]

SERVER = str(Path(__file__).parent / "mcp_echo.py")
STUBBORN = str(Path(__file__).parent / "mcp_stubborn.py")
ECHO = {"name": "echo", "command": sys.executable, "args": [SERVER], "env": [{"name": "PREFIX", "value": "> "}]}


@pytest.fixture
def bench(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("acp_bridge.mcp.servers.READY_LIMIT_S", 100.0)  # the SDK starts slowly on a busy machine
    (short_tmp / "run").mkdir(mode=0o700)
    (short_tmp / "work").mkdir()
    return Bench(short_tmp, row("alpha", tools=True))


@pytest.fixture
def http_server() -> Iterator[str]:
    """The address of a real HTTP server, which wants a token."""
    process = subprocess.Popen([sys.executable, SERVER, "http"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()
    process.stdout.close()


def calling(daemon: FakeDaemon, *calls: tuple[str, str]) -> None:
    """One round with these calls, then the end."""
    rounds = [[api.ToolCall(id=str(place), name=name, arguments=text) for place, (name, text) in enumerate(calls)], []]

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        now = rounds.pop(0) if rounds else []
        return result(params, "tool_calls" if now else "stop", tool_calls=now)

    daemon.script = script
    daemon.answers["run/hold"] = api.Value()


async def allow(method: str, params: dict[str, Any]) -> Any:
    assert method == "session/request_permission"
    return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


async def begin(client: Any, bench: Bench, *servers: dict[str, Any], **capabilities: Any) -> str:
    await client.initialize(**capabilities)
    made = await client.request("session/new", {"cwd": str(bench.folder / "work"), "mcpServers": list(servers)})
    client.answer = allow
    return str(made["sessionId"])


def reported(daemon: FakeDaemon) -> list[str]:
    return [message["content"] for message in daemon.turns[-1].messages if message["role"] == "tool"]


def offered(daemon: FakeDaemon) -> set[str]:
    return {tool["function"]["name"] for tool in daemon.turns[0].tools}


def here() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def ended(before: set[int]) -> None:
    """Until every process that was started since is gone."""
    with anyio.fail_after(10):
        while here() - before:
            await anyio.sleep(0.05)


async def test_stdio_servers_and_their_end_with_the_session(bench: Bench) -> None:
    broken = {"name": "broken", "command": "/no/such/server", "args": [], "env": []}
    silent = {"name": "silent", "command": "/bin/sh", "args": ["-c", "echo no config >&2; exit 3"], "env": []}
    older = {"name": "older", "type": "sse", "url": "http://x", "headers": []}
    before = here()
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("echo_look", '{"text": "hi"}'), ("echo_change", '{"text": "x"}'), ("echo_fail", "{}"))
        session = await begin(client, bench, ECHO, broken, silent, older)
        await client.prompt(session, "use the server")
        assert {"echo_look", "echo_change", "read_file"} <= offered(daemon)
        assert reported(daemon)[:2] == ["> hi", "changed x"]
        assert reported(daemon)[2].startswith("Error: Error executing tool fail")
        asked = [params["toolCall"]["title"] for _, params in client.asked]
        assert asked == ["echo: look", "echo: change", "echo: fail"]
        said = client.text()
        assert "The MCP server broken is not available: /no/such/server cannot be run: No such file" in said
        assert "The MCP server silent is not available" in said
        assert "it said: no config" in said
        assert "sse servers are not supported" in said
        before_next = len(client.text())
        await client.prompt(session, "again")
        assert "not available" not in client.text()[before_next:], "said once"
        await client.request("session/close", {"sessionId": session})
        await ended(before)


async def test_without_the_library_it_is_said_how_to_get_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon)
        await client.prompt(await begin(client, bench, ECHO), "hi")
        assert "pip install 'modeld[mcp]'" in client.text()


async def test_a_server_that_will_not_end_is_ended(bench: Bench) -> None:
    before = here()
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon)
        session = await begin(client, bench, {**ECHO, "args": [STUBBORN]})
        await client.prompt(session, "hi")
        assert here() - before
        await client.request("session/close", {"sessionId": session})
        await ended(before)


async def test_opening_a_conversation_again_changes_its_servers(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon)
        session = await begin(client, bench, ECHO)
        await client.prompt(session, "hi")
        opening = {"sessionId": session, "cwd": str(bench.folder / "work")}
        await client.request("session/load", {**opening, "mcpServers": [{**ECHO, "name": "other"}]})
        await client.prompt(session, "hi")
        names = {tool["function"]["name"] for tool in daemon.turns[-1].tools}
        assert "other_look" in names
        assert "echo_look" not in names


async def test_two_servers_of_one_name(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("echo_look", '{"text": "hi"}'), ("echo_look_2", '{"text": "hi"}'))
        second = {**ECHO, "env": [{"name": "PREFIX", "value": "second "}]}
        await client.prompt(await begin(client, bench, ECHO, second), "hi")
        assert {"echo_look", "echo_look_2"} <= offered(daemon)
        assert reported(daemon) == ["> hi", "second hi"]


async def test_http_servers(bench: Bench, http_server: str) -> None:
    token = [{"name": "Authorization", "value": "Bearer secret"}]
    good = {"name": "web", "type": "http", "url": http_server, "headers": token}
    locked = {"name": "locked", "type": "http", "url": http_server, "headers": []}
    nobody = {"name": "nobody", "type": "http", "url": "http://127.0.0.1:9/mcp", "headers": []}
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("web_look", '{"text": "hi"}'), ("web_change", '{"text": "x"}'))
        answer = await client.initialize()
        assert answer["agentCapabilities"]["mcpCapabilities"]["http"] is True
        session = await begin(client, bench, good, locked, nobody)
        await client.prompt(session, "use the server")
        assert reported(daemon) == ["hi", "changed x"]
        assert {"web_look", "web_paint"} <= offered(daemon)
        assert not [name for name in offered(daemon) if name.startswith(("locked", "nobody"))]
        for name in ("locked", "nobody"):
            assert f"The MCP server {name} is not available" in client.text()
        assert "secret" not in client.text()


async def test_what_a_server_asks_the_user_is_a_form_of_the_editor(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("echo_paint", "{}"), ("echo_paint", "{}"))
        session = await begin(client, bench, ECHO, elicitation={"form": {}})
        answers: list[dict[str, Any]] = [{"action": "accept", "content": {"colour": "blue"}}, {"action": "decline"}]

        async def answer(method: str, params: dict[str, Any]) -> Any:
            if method == "session/request_permission":
                return await allow(method, params)
            assert method == "elicitation/create"
            assert params["sessionId"] == session
            assert (params["mode"], params["message"]) == ("form", "echo: Which colour?")
            assert params["requestedSchema"]["properties"]["colour"]["type"] == "string"
            return answers.pop(0)

        client.answer = answer
        await client.prompt(session, "paint")
        assert reported(daemon)[0] == "painted blue"
        assert reported(daemon)[1].startswith("not painted: decline")


async def test_a_cancel_ends_the_form_too(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("echo_paint", "{}"))
        session = await begin(client, bench, ECHO, elicitation={"form": {}})
        asked, taken_back = anyio.Event(), anyio.Event()

        async def never(method: str, params: dict[str, Any]) -> Any:
            if method == "session/request_permission":
                return await allow(method, params)
            asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                taken_back.set()

        client.answer = never
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "paint"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await asked.wait()
            client.notify("session/cancel", {"sessionId": session})
        with anyio.fail_after(5):
            await taken_back.wait()


async def test_an_editor_without_forms_is_not_asked(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        calling(daemon, ("echo_paint", "{}"))
        session = await begin(client, bench, ECHO)
        await client.prompt(session, "paint")
        assert reported(daemon)[0].startswith("Error: ")
        assert [method for method, _ in client.asked] == ["session/request_permission"], "no form"
