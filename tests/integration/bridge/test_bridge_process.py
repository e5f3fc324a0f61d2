"""The bridge as an editor has it: a spawned process, its pipes, its signals, its end."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge_fakes import says, until_cancelled
from bridge_world import World, scripted
from clients.bridge import BridgeError
from clients.child import EXIT_SECONDS
from shared.protocol import api
from waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

#: What may not be in memory after initialize: each costs more than the whole start may.
HEAVY = [
    "pygls", "lsprotocol", "pydantic", "httpx2", "httpx", "rich", "sqlite3", "openai", "mcp", "numpy", "llama_cpp",
    "openvino", "jsonrpcclient", "psutil", "tomllib", "starlette", "uvicorn", "h11", "argparse",
    "email", "http", "shared.catalog.library",
    "acp_bridge.core.core", "acp_bridge.conversations.store",
]  # fmt: skip

PROBE = """
import atexit, json, os, sys
def tell():
    with open(os.environ["MODULES_FILE"], "w") as file:
        json.dump(sorted(sys.modules), file)
import shared.protocol.requests as requests
answered = requests.Call.answered
def after(call):
    tell()
    answered(call)
requests.Call.answered = after
import acp_bridge.__main__ as bridge
bridge.main()
"""


def test_initialize_imports_nothing_heavy(world: World) -> None:
    listing = world.folder / "modules.json"
    with world.bridge(sys.executable, "-c", PROBE, "acp", MODULES_FILE=str(listing)) as editor:
        editor.initialize()
        until(lambda: listing.exists() and listing.read_text(), "the list of modules")
    loaded = set(json.loads(listing.read_text()))
    assert {"asyncio", "shared.protocol.peer", "acp_bridge.faces.acp.server"} <= loaded, "the probe reported too early"
    ours = [name for name in HEAVY if name.partition(".")[0] in ("shared", "acp_bridge")]
    assert all(importlib.util.find_spec(name) for name in ours), "a name of the list is nobody's"
    found = [name for name in HEAVY if name in loaded]
    assert not found, f"loaded before the first answer: {found}"


def test_end_of_input_ends_the_process(world: World) -> None:
    with world.bridge() as editor:
        editor.initialize()
        editor.new_session(world.work)
        assert editor.close() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_in_order(world: World, number: signal.Signals) -> None:
    with world.bridge() as editor:
        editor.initialize()
        editor.process.send_signal(number)
        assert editor.process.wait(EXIT_SECONDS) == 0


def test_end_of_input_before_anything(world: World) -> None:
    with world.bridge() as editor:
        assert editor.close() == 0


def test_a_setting_that_cannot_be_used_is_reported_to_the_editor(world: World) -> None:
    with world.bridge(MODELD_LEASE_TTL="soon") as editor:
        editor.initialize()
        session = editor.new_session(world.work)["sessionId"]
        assert "MODELD_LEASE_TTL" not in editor.prompt(session, "/help").text, "a command needs no setting"
        asked = editor.begin_prompt(session, "hi")
        with pytest.raises(BridgeError) as refused:
            editor.end_prompt(asked)
        assert refused.value.kind == "daemon_not_running", "which is all that is in the way"
        said = "".join(update["content"].get("text", "") for _, update in asked.updates if "content" in update)
        assert "MODELD_LEASE_TTL: it must be a number of seconds" in said
        assert "Traceback" not in editor.errors()


def test_no_daemon_is_said_with_the_next_step(world: World) -> None:
    with world.bridge() as editor:
        editor.initialize()
        session = editor.new_session(world.work)["sessionId"]
        with pytest.raises(BridgeError) as refused:
            editor.prompt(session, "hi")
        assert refused.value.kind == "daemon_not_running"
        assert "modeld start" in refused.value.message


async def test_a_daemon_found_by_its_records(world: World, tiny: str) -> None:
    async with scripted(world) as daemon:
        daemon.script = says("Hello")

        def talk() -> tuple[list[str], list[str], str]:
            with world.bridge(MODELD_MODEL_FOLDERS=tiny) as editor:
                editor.initialize()
                text = editor.prompt(editor.new_session(world.work)["sessionId"], "hi").text
                warm = offered(editor.new_session(world.work))
            with world.bridge(MODELD_MODEL_FOLDERS=tiny) as editor:
                editor.initialize()
                # what was remembered is bounded in time too: on a busy machine the first list may come without it
                fresh = until(lambda: offered(editor.new_session(world.work)), "models are offered")
                return warm, fresh, text

        warm, fresh, text = await anyio.to_thread.run_sync(talk)
        assert text == "Hello"
        assert warm == fresh == [daemon.turns[0].model]


def offered(made: dict[str, Any]) -> list[str]:
    return [choice["value"] for group in made["configOptions"][0]["options"] for choice in group["options"]]


async def test_a_hung_daemon_hangs_nobody(world: World, tiny: str) -> None:
    async with scripted(world) as daemon:
        daemon.hung = True

        def talk() -> BridgeError:
            with world.bridge(MODELD_MODEL_FOLDERS=tiny) as editor:
                editor.initialize()
                session = editor.new_session(world.work)["sessionId"]
                with pytest.raises(BridgeError) as refused:
                    editor.prompt(session, "hi", seconds=10)
                return refused.value

        refused = await anyio.to_thread.run_sync(talk)
        assert refused.kind == "daemon_unreachable"


async def test_a_killed_bridge_cancels_its_turn(world: World, tiny: str) -> None:
    async with scripted(world) as daemon:
        gone = anyio.Event()

        async def script(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
            try:
                return await until_cancelled(params, emit, cancelled)
            finally:
                gone.set()

        daemon.script = script

        def talk() -> None:
            editor = world.bridge(MODELD_MODEL_FOLDERS=tiny)
            editor.initialize()
            session = editor.new_session(world.work)["sessionId"]
            pending = editor.begin_prompt(session, "hi")
            editor.wait_update(pending, "agent_message_chunk", 10)
            editor.kill()

        await anyio.to_thread.run_sync(talk)
        with anyio.fail_after(5):
            await gone.wait()


async def test_what_was_said_survives_a_kill(world: World, tiny: str) -> None:
    async with scripted(world) as daemon:
        daemon.script = says("Hello")

        def talk() -> list[str]:
            first = world.bridge(MODELD_MODEL_FOLDERS=tiny)
            first.initialize()
            session = first.new_session(world.work)["sessionId"]
            first.prompt(session, "remember this")
            until(lambda: "Hello" in _saved(world.root.bridge_database), "the message is saved")
            first.kill()
            with world.bridge(MODELD_MODEL_FOLDERS=tiny) as editor:
                editor.initialize()
                editor.request("session/load", {"sessionId": session, "cwd": str(world.work), "mcpServers": []})
                return [update["update"]["sessionUpdate"] for update in editor.updates]

        kinds = await anyio.to_thread.run_sync(talk)
        assert kinds[:2] == ["user_message_chunk", "agent_message_chunk"]


def _saved(database: Path) -> str:
    import sqlite3

    if not database.exists():
        return ""
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return " ".join(row[0].decode() for row in db.execute("select body from events"))
    except sqlite3.OperationalError:
        return ""
    finally:
        db.close()
