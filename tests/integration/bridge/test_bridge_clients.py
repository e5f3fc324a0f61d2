"""The clients that editors are built from go through every method of the protocol, a tool turn and both cancels.

The answers are scripted; the real models answer the same clients in tests/e2e/test_real_clients.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from bridge_fakes import Emit, FakeDaemon, result, until_cancelled
from bridge_world import World, scripted
from clients.judge import converse, judge, tapped
from clients.npm import node_modules, tool
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.node, pytest.mark.timeout(180)]

OFFERS = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False}
EDIT = json.dumps({"path": "app.py", "old": "limit = 1", "new": "limit = 2"})
PLAN = json.dumps({"steps": [{"step": "edit", "status": "completed"}]})


@pytest.fixture
async def daemon(world: World, tiny: str) -> AsyncIterator[FakeDaemon]:
    """It edits, plans, talks for ever, or just answers, as the user's words say."""
    world.environ |= {"MODELD_MODEL_FOLDERS": tiny, "MODELD_TEACH_TOOLS_FROM": "0"}
    (world.work / "app.py").write_text("limit = 1\n")

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        last = params.messages[-1]
        if last["role"] == "tool":
            emit(api.TextDelta(text="Raised."))
            return result(params)
        if "edit" in last["content"]:
            emit(api.Thinking())
            emit(api.ReasoningDelta(text="one edit"))
            calls = [
                api.ToolCall(id="1", name="edit_file", arguments=EDIT),
                api.ToolCall(id="2", name="update_plan", arguments=PLAN),
            ]
            return result(params, "tool_calls", tool_calls=calls)
        if "talk" in last["content"]:
            return await until_cancelled(params, emit, cancelled)
        emit(api.TextDelta(text="Hello"))
        return result(params)

    async with scripted(world) as running:
        running.answers["run/hold"] = api.Value()
        running.script = script
        yield running


def plan(world: World, **opening: Any) -> list[dict[str, Any]]:
    """Every stable method, in the order of a life. `call` is what older SDKs name the method."""
    where = {"cwd": str(world.work), "mcpServers": []}
    return [
        {"do": "initialize", "capabilities": {**OFFERS, **opening}},
        {"do": "ask", "call": "authenticate", "method": "authenticate", "params": {"methodId": "local"}, "bare": True},
        {"do": "new", "cwd": str(world.work)},
        {"do": "ask", "call": "setSessionMode", "method": "session/set_mode", "params": {"modeId": "code"}},
        {
            "do": "ask",
            "call": "setSessionConfigOption",
            "method": "session/set_config_option",
            "params": {"configId": "mode", "value": "auto"},
        },
        {"do": "prompt", "text": "edit the file"},
        {"do": "cancel", "text": "talk"},
        {"do": "prompt", "text": "hello"},
        {
            "do": "ask",
            "call": "listSessions",
            "method": "session/list",
            "params": {"cwd": str(world.work)},
            "bare": True,
        },
        {"do": "ask", "call": "loadSession", "method": "session/load", "params": where},
        {"do": "ask", "call": "resumeSession", "method": "session/resume", "params": where},
        {"do": "ask", "call": "closeSession", "method": "session/close"},
        {"do": "ask", "call": "deleteSession", "method": "session/delete"},
        {"do": "ask", "call": "logout", "method": "logout", "bare": True},
    ]


def kinds(step: dict[str, Any]) -> set[str]:
    return {update["kind"] for update in step["updates"]}


def check_life(world: World, steps: list[dict[str, Any]]) -> None:
    failed = [step for step in steps if "error" in step]
    assert not failed
    assert (world.work / "app.py").read_text() == "limit = 2\n"
    edited, cancelled, answered = [step for step in steps if step["step"] in ("prompt", "cancel")][:3]
    assert edited["result"]["stopReason"] == answered["result"]["stopReason"] == "end_turn"
    assert {"tool_call", "tool_call_update", "plan", "agent_thought_chunk", "agent_message_chunk"} <= kinds(edited)
    assert cancelled["result"]["stopReason"] == "cancelled"
    listed = next(step for step in steps if step["result"].get("sessions"))
    assert listed["result"]["sessions"][0]["title"] == "edit the file"
    loaded = steps[steps.index(listed) + 1]
    assert {"user_message_chunk", "tool_call", "plan", "agent_thought_chunk"} <= kinds(loaded)
    assert loaded["result"]["configOptions"]
    assert "user_message_chunk" not in kinds(steps[steps.index(listed) + 2]), "resume shows nothing again"
    assert steps[-1]["result"] == {"code": 0, "signal": None}


async def test_typescript_sdk_2_4(world: World, daemon: FakeDaemon) -> None:
    booleans = {"session": {"configOptions": {"boolean": {}}}, "elicitation": {"form": {}}}
    life = plan(world, **booleans)
    life.insert(-5, {"do": "abort", "text": "talk"})
    steps = await anyio.to_thread.run_sync(converse, world, "conversation.mjs", node_modules() / "sdk-2.4", life)
    (aborted,) = [step for step in steps if step["step"] == "abort"]
    assert aborted["result"]["stopReason"] == "cancelled"
    made = next(step for step in steps if step["step"] == "new")["result"]
    assert [option["type"] for option in made["configOptions"]] == ["select", "select", "boolean"]
    steps.remove(aborted)
    check_life(world, steps)


async def test_typescript_sdk_1_9(world: World, daemon: FakeDaemon) -> None:
    steps = await anyio.to_thread.run_sync(converse, world, "legacy.mjs", node_modules() / "sdk-1.9", plan(world))
    assert "absent" not in json.dumps(steps)
    check_life(world, steps)


async def test_typescript_sdk_0_12(world: World, daemon: FakeDaemon) -> None:
    steps = await anyio.to_thread.run_sync(converse, world, "legacy.mjs", node_modules() / "sdk-0.12", plan(world))
    absent = {step["result"]["absent"] for step in steps if "absent" in (step.get("result") or {})}
    assert absent == {"setSessionConfigOption", "closeSession", "deleteSession", "logout"}, "younger than this SDK"
    check_life(world, steps)


async def test_python_sdk(world: World, daemon: FakeDaemon) -> None:
    import acp
    from acp import schema

    class Editor(acp.Client):
        """An editor that reads and writes real files and says yes."""

        def __init__(self) -> None:
            self.kinds: list[str] = []

        async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
            self.kinds.append(update.session_update)

        async def request_permission(self, session_id: str, tool_call: Any, options: Any, **kwargs: Any) -> Any:
            chosen = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
            return schema.RequestPermissionResponse(outcome=chosen)

        async def read_text_file(
            self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **kwargs: Any
        ) -> Any:
            return schema.ReadTextFileResponse(content=await anyio.Path(path).read_text())

        async def write_text_file(self, session_id: str, path: str, content: str, **kwargs: Any) -> Any:
            await anyio.Path(path).write_text(content)
            return schema.WriteTextFileResponse()

    editor = Editor()  # type: ignore[abstract]
    log = world.folder / "python.log"
    program, *arguments = tapped(world, log)
    where: dict[str, Any] = {"cwd": str(world.work), "mcp_servers": []}
    async with acp.spawn_agent_process(editor, program, *arguments, env=world.environ) as (agent, process):
        fs = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION, client_capabilities=schema.ClientCapabilities(fs=fs)
        )
        await agent.authenticate(method_id="local")
        session = (await agent.new_session(**where)).session_id
        await agent.set_session_mode(session_id=session, mode_id="code")
        await agent.set_config_option(session_id=session, config_id="mode", value="auto")
        done = await agent.prompt(session_id=session, prompt=[acp.text_block("edit the file")])
        assert done.stop_reason == "end_turn"
        assert {"tool_call", "tool_call_update", "plan", "agent_message_chunk"} <= set(editor.kinds)
        listed = await agent.list_sessions(cwd=str(world.work))
        assert [one.session_id for one in listed.sessions] == [session]
        editor.kinds.clear()
        await agent.load_session(session_id=session, **where)
        assert "user_message_chunk" in editor.kinds
        await agent.resume_session(session_id=session, **where)
        async with anyio.create_task_group() as group:

            async def talk() -> None:
                ended = await agent.prompt(session_id=session, prompt=[acp.text_block("talk")])
                assert ended.stop_reason == "cancelled"

            editor.kinds.clear()
            group.start_soon(talk)
            with anyio.fail_after(20):
                while "agent_message_chunk" not in editor.kinds:
                    await anyio.lowlevel.checkpoint()
            await agent.cancel(session_id=session)
        await agent.close_session(session_id=session)
    assert process.returncode == 0
    assert (world.work / "app.py").read_text() == "limit = 2\n"
    await anyio.to_thread.run_sync(judge, world, log)


async def test_acpx(world: World, daemon: FakeDaemon) -> None:
    def run(number: int, *arguments: str, permissions: str = "--approve-all") -> list[dict[str, Any]]:
        log = world.folder / f"acpx-{number}.log"
        agent = " ".join(tapped(world, log))
        program = [tool("node"), str(node_modules() / "acpx/dist/cli.js"), "--agent", agent, "--cwd", str(world.work)]
        done = subprocess.run(
            [*program, permissions, "--format", "json", "--ttl", "1", *arguments],
            env=world.environ,
            cwd=world.work,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-3000:]}\n{done.stderr[-2000:]}"
        judge(world, log)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def talk() -> None:
        said = json.dumps(run(1, "exec", "edit the file"))
        assert "Raised." in said
        assert (world.work / "app.py").read_text() == "limit = 2\n"
        assert "edit the file" in json.dumps(run(2, "sessions", "list"))

    await anyio.to_thread.run_sync(talk)


def test_the_versions_are_those_the_protocol_page_names() -> None:
    lock = json.loads((Path(node_modules()).parent / "package.json").read_text())["dependencies"]
    assert lock["acpx"] == "0.19.1"
    assert {lock[name].rpartition("@")[2] for name in ("sdk-2.4", "sdk-1.9", "sdk-0.12")} == {
        "2.4.0",
        "1.9.0",
        "0.12.0",
    }
