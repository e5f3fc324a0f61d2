"""Clients that editors are built from drive the bridge; the schema judges all it sends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clients.bridge import Turn
from clients.home import Home
from clients.judge import converse, judge, tapped
from clients.npm import tool

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.node, pytest.mark.openvino, pytest.mark.timeout(300)]

CAPITAL = "What is the capital of France? Answer in one word."
LONG = "Write a long story about a lighthouse keeper and the sea."


def texts(step: dict[str, Any]) -> str:
    return "".join(u["text"] or "" for u in step["updates"] if u["kind"] == "agent_message_chunk")


def plan(home: Home, *, choose: bool = True) -> list[dict[str, Any]]:
    picking: list[dict[str, Any]] = [
        {"do": "choose", "part": "smollm2", "listed": True},
        {"do": "choose", "part": "no-such-model"},
    ]
    return [
        {"do": "initialize"},
        {"do": "new", "cwd": str(home.work)},
        *(picking if choose else []),
        {"do": "prompt", "text": CAPITAL},
        {"do": "prompt", "text": CAPITAL},
        {"do": "cancel", "text": LONG},
        {"do": "prompt", "text": CAPITAL},
        {"do": "prompt", "session": "no-such-session", "text": CAPITAL},
    ]


def by_step(steps: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [step for step in steps if step["step"] == name]


def ended_by(home: Home, meta: dict[str, Any] | None) -> str:
    """What the reason of a turn has to be that nobody stopped: see `clients.bridge.Turn.ended_by`."""
    return Turn("", [], 0.0, 0.0, meta or {}).ended_by(home.environ["MODELD_TURN_TOKENS"])


def check_story(home: Home, steps: list[dict[str, Any]]) -> None:
    assert by_step(steps, "initialize")[0]["result"]["protocolVersion"] == 1
    prompts = by_step(steps, "prompt")
    for prompt in prompts[:3]:
        assert prompt["result"]["stopReason"] == ended_by(home, prompt["result"].get("_meta"))
    assert texts(prompts[0])
    assert texts(prompts[2])
    assert prompts[3]["error"]["code"] == -32002
    assert by_step(steps, "cancel")[0]["result"]["stopReason"] == "cancelled"
    assert by_step(steps, "exit")[0]["result"] == {"code": 0, "signal": None}


def test_official_typescript_sdk(openvino: Home, modules: Path) -> None:
    more = [{"do": "list"}, {"do": "load", "cwd": str(openvino.work)}, {"do": "close"}]
    steps = converse(openvino, "conversation.mjs", modules / "sdk-2.4", plan(openvino) + more)
    check_story(openvino, steps)
    good, bad = by_step(steps, "choose")
    (model,) = [o for o in good["result"]["configOptions"] if o["category"] == "model"]
    assert "smollm2" in model["currentValue"].lower()
    assert bad["error"]["code"] == -32602
    assert by_step(steps, "list")[0]["result"]["sessions"], "the conversation is listed"
    replayed = [u["kind"] for u in by_step(steps, "load")[0]["updates"]]
    assert "user_message_chunk" in replayed
    assert "agent_message_chunk" in replayed
    assert "result" in by_step(steps, "close")[0]


def test_typescript_sdk_of_older_editors(openvino: Home, modules: Path) -> None:
    check_story(openvino, converse(openvino, "legacy.mjs", modules / "sdk-1.9", plan(openvino)))


def test_typescript_sdk_before_config_options(openvino: Home, modules: Path) -> None:
    # this client cannot pick: what is loaded answers
    openvino.run("modeld", "load", openvino.model("smollm2"))
    check_story(openvino, converse(openvino, "legacy.mjs", modules / "sdk-0.12", plan(openvino, choose=False)))


async def test_official_python_sdk(openvino: Home) -> None:
    import acp

    class Editor(acp.Client):
        """Collects the text."""

        def __init__(self) -> None:
            self.text = ""

        async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
            if update.session_update == "agent_message_chunk":
                self.text += update.content.text

    editor = Editor()  # type: ignore[abstract]
    log = openvino.folder / "python.log"
    command, *arguments = tapped(openvino, log)
    async with acp.spawn_agent_process(editor, command, *arguments, env=openvino.environ) as (agent, process):
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert hello.protocol_version == 1
        session = await agent.new_session(cwd=str(openvino.work), mcp_servers=[])
        name = openvino.model("smollm2")
        await agent.set_config_option(session_id=session.session_id, config_id="model", value=name)
        answer = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(CAPITAL)])
        assert answer.stop_reason == ended_by(openvino, answer.field_meta)
        assert editor.text
    assert process.returncode == 0
    judge(openvino, log)


def test_acpx(openvino: Home, modules: Path) -> None:
    log = openvino.folder / "acpx.log"
    agent = " ".join(tapped(openvino, log))
    options = ["--agent", agent, "--cwd", str(openvino.work), "--model", openvino.model("smollm2"), "--deny-all"]
    done = subprocess.run(
        [tool("node"), str(modules / "acpx/dist/cli.js"), *options, "--format", "json", "exec", CAPITAL],
        env=openvino.environ,
        cwd=openvino.work,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
    words = "".join(find_texts([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]))
    assert words
    judge(openvino, log)


def find_texts(value: Any) -> list[str]:
    """All agent text in the messages acpx reports, wherever it puts them."""
    if isinstance(value, list):
        return [text for item in value for text in find_texts(item)]
    if not isinstance(value, dict):
        return []
    if value.get("sessionUpdate") == "agent_message_chunk":
        return [value["content"]["text"]]
    return [text for item in value.values() for text in find_texts(item)]
