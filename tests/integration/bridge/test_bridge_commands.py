"""The slash commands, each as a user types it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge_fakes import Bench, active, bridge, conversation, opened, running, says
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


async def say(client: Any, session: str, text: str) -> str:
    before = len(client.text())
    assert (await client.prompt(session, text))["stopReason"] == "end_turn"
    return str(client.text()[before:])


async def test_help_lists_every_command(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        answer = await say(client, await client.new(), "/help")
        for name in (
            "model",
            "status",
            "load",
            "unload",
            "switch",
            "context",
            "compact",
            "export",
            "tools",
            "doctor",
            "start",
        ):
            assert f"/{name}" in answer
        (update,) = [update for _, update in client.updates if update["sessionUpdate"] == "available_commands_update"]
        assert "help" in [command["name"] for command in update["availableCommands"]]


async def test_picking_by_command_shows_in_the_picker(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        assert "- `beta`" in await say(client, session, "/model")
        await say(client, session, "/model beta")
        await client.wait_for(lambda: "config_option_update" in client.kinds())
        assert "no model named nonsense" in await say(client, session, "/model nonsense")
        await say(client, session, "hi")
        assert daemon.turns[0].model == "beta"


async def test_status_load_unload_and_switch(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        loaded = api.LoadResult(active=active("beta"), generation=2, loaded=True, load_seconds=1.5)
        daemon.answers["model/load"] = loaded
        daemon.answers["model/unload"] = api.UnloadResult(freed="beta", freed_bytes=92_000_000, generation=3)
        await client.initialize()
        session = await client.new()
        assert "Ready" in await say(client, session, "/status")
        assert "beta is loaded in 1.5 s, context 2,048" in await say(client, session, "/switch beta")
        assert "92 MB are free again" in await say(client, session, "/unload")
        assert "/switch <name>" in await say(client, session, "/switch")
        assert daemon.turns == []


async def test_commands_are_not_sent_to_the_model(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await say(client, session, "/help")
        await say(client, session, "hi")
        assert conversation(daemon.turns[0]) == [{"role": "user", "content": "hi"}]


async def test_compact_goes_on_from_a_summary(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        assert "nothing to compact" in await say(client, session, "/compact")
        await say(client, session, "remember the number 7")
        daemon.script = says("The number is 7.")
        assert "The number is 7." in await say(client, session, "/compact")
        daemon.script = says("Yes.")
        await say(client, session, "which number?")
        contents = [message["content"] for message in conversation(daemon.turns[-1])]
        assert "The number is 7." in contents[0]
        assert contents[-1] == "which number?"
        assert "remember the number" not in str(contents)


async def test_context_is_counted_by_the_model(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        daemon.status = api.Status(
            instance=daemon.instance, role="owner", pid=1, backend="llama", state="Ready", generation=1,
            active=active("alpha", 4096),
        )  # fmt: skip
        await client.initialize()
        session = await client.new()
        await say(client, session, "hi")
        daemon.count = api.CountResult(each=[5, 6], total=17)
        assert "17 tokens in 2 messages; the window of alpha is 4,096" in await say(client, session, "/context")


async def test_commands_without_a_daemon_say_the_next_step(bench: Bench) -> None:
    async with bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        for command in ("/status", "/load", "/unload", "/doctor"):
            assert "modeld start" in await say(client, session, command)


async def test_start_is_the_only_way_that_starts_modeld(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    async def run(command: list[str], **options: Any) -> Any:
        ran.append(command)

        class Done:
            returncode, stdout, stderr = 0, b"modeld started\n", b""

        return Done()

    monkeypatch.setattr("acp_bridge.daemon.start.anyio.run_process", run)
    async with bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await say(client, session, "/doctor")
        assert ran == []
        assert "modeld started" in await say(client, session, "/start")
        assert ran[0][-2:] == ["modeld", "start"]


async def test_export_writes_a_file_into_the_workspace_and_replaces_none(bench: Bench) -> None:
    work = bench.folder / "work"
    work.mkdir()
    async with running(bench), opened(bench) as (client, _):
        session = await client.new(str(work))
        assert "nothing to export" in await say(client, session, "/export")
        await say(client, session, "Fix the bug")
        name = f"fix-the-bug-{session[:8]}.md"
        assert name in await say(client, session, "/export")
        assert "Hello world" in (work / name).read_text()
        assert "exists already" in await say(client, session, "/export")
        assert "outside of the workspace" in await say(client, session, "/export ../out.md")
        await say(client, session, "/export notes/talk.md")
        assert (work / "notes" / "talk.md").read_text().startswith("# Fix the bug")


async def test_export_by_method_of_an_open_and_a_saved_conversation(bench: Bench) -> None:
    async with running(bench), opened(bench) as (client, session):
        await say(client, session, "Fix the bug")
        first = await client.request("_modeld/export", {"sessionId": session})
        assert "Hello world" in first["markdown"]
        await client.request("session/close", {"sessionId": session})
        assert await client.request("_modeld/export", {"sessionId": session}) == first
        with pytest.raises(ModeldError) as unknown:
            await client.request("_modeld/export", {"sessionId": "nobody"})
        assert unknown.value.code == -32002


async def test_tools_by_command(bench: Bench) -> None:
    async with running(bench) as daemon, opened(bench) as (client, session):
        assert "no tools" in await say(client, session, "/tools")
        assert "its tools" in await say(client, session, "/tools on")
        await say(client, session, "hi")
        assert daemon.turns[0].tools
        assert "/tools on" in await say(client, session, "/tools maybe")
