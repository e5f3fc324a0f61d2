"""The package is replaced under a running bridge: it goes on with what it has, says so once, imports nothing new."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio.to_thread
import pytest

from bridge_world import World, scripted
from clients.bridge import Bridge, BridgeError
from versions import OtherVersion

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(90)]

NOTICE = "acp-bridge was replaced by version 0.0.10"


async def test_a_replaced_package(world: World, tiny: str, tmp_path: Path) -> None:
    old = OtherVersion(tmp_path / "old", "0.0.9")
    world.environ |= {**old.environ, "MODELD_MODEL_FOLDERS": tiny, "MODELD_TEACH_TOOLS_FROM": "0"}

    def talk() -> None:
        with world.bridge(sys.executable, "-P", "-m", "acp_bridge", "acp") as editor:
            assert editor.initialize()["agentInfo"]["version"] == "0.0.9"
            made = editor.new_session(world.work)
            editor.find_model(made, "tiny")
            session = made["sessionId"]
            assert editor.prompt(session, "hi").text == "Hello world"
            old.say("0.0.10")
            first = editor.prompt(session, "hi").text
            assert NOTICE in first
            assert first.endswith("Hello world"), "the turn works with what is loaded"
            assert editor.prompt(session, "hi").text == "Hello world", "said once"
            for method in ("session/close", "session/delete"):
                editor.request(method, {"sessionId": session})
            what_needs_new_code_says_so(editor, world)

    async with scripted(world):
        await anyio.to_thread.run_sync(talk)


def what_needs_new_code_says_so(editor: Bridge, world: World) -> None:
    """The code of MCP servers was not in memory yet, nor that which starts modeld."""
    server = {"name": "late", "command": sys.executable, "args": [], "env": []}
    made = editor.request("session/new", {"cwd": str(world.work), "mcpServers": [server]})
    answer = editor.prompt(made["sessionId"], "hi")
    assert "The MCP server late is not available: modeld 0.0.9 was replaced by 0.0.10" in answer.text
    assert answer.text.endswith("Hello world")
    assert "restart the agent" in editor.prompt(made["sessionId"], "/start").text
    with pytest.raises(BridgeError) as unknown:
        editor.prompt("nobody", "hi")
    assert unknown.value.code == -32002, "errors keep their translation"
