"""Whatever an editor sends: nothing is raised, and every request with a usable id is answered exactly once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import converters

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.server import LspServer
from memory_stream import memory_pair
from shared.errors import DaemonNotRunning
from shared.paths import DataRoot
from shared.protocol.framing import HeaderFramer
from shared.settings import Settings

pytestmark = pytest.mark.integration

METHODS = [
    *(method.name for method in wire.METHODS),
    "initialize",
    "shutdown",
    "textDocument/inlineCompletion",
    "textDocument/codeAction",
    "textDocument/didOpen",
    "textDocument/didChange",
    "workspace/executeCommand",
    "window/workDoneProgress/cancel",
    "$/cancelRequest",
    "$/setTrace",
    "nonsense",
]
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "jsonrpc",
                    "id",
                    "method",
                    "params",
                    "messages",
                    "model",
                    "token",
                    "uri",
                    "textDocument",
                    "position",
                    "text",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers(100, 140), "method": st.sampled_from(METHODS)},
    optional={"params": VALUES},
)
NOTES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS)}, optional={"params": VALUES}
)
MESSAGES = st.lists(REQUESTS | NOTES | VALUES, max_size=8)


async def play(folder: Path, messages: list[Any]) -> tuple[Counter[int], list[dict[str, Any]]]:
    """Ids asked, and everything that was written, over a real connection."""
    server = LspServer(lambda name: None, DataRoot(folder), Settings())  # type: ignore[arg-type, return-value]
    server.window.become_unusable(DaemonNotRunning())
    server._editor.on_initialize = lambda params, capabilities: None
    ours, theirs = memory_pair()
    framer = HeaderFramer(1 << 26)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}
    asked: Counter[int] = Counter()
    bodies: list[dict[str, Any]] = []

    async def read() -> None:
        while True:
            try:
                data = await theirs.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            bodies.extend(json.loads(body) for body in framer.feed(data) if isinstance(body, bytes))

    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, ours)
        group.start_soon(read)
        for message in [hello, *messages]:
            if isinstance(message, dict) and isinstance(message.get("id"), int) and message.get("jsonrpc") == "2.0":
                asked[message["id"]] += not isinstance(message.get("id"), bool) and "method" in message
            await theirs.send(framer.frame(json.dumps(message).encode()))
        wanted = {number for number, count in asked.items() if count}
        with anyio.move_on_after(5):
            while not wanted <= {body.get("id") for body in bodies}:
                await asyncio.sleep(0)
        await theirs.aclose()
    return asked, bodies


CONVERTER = converters.get_converter()  # what makes a server slow to make


@pytest.mark.timeout(90)
@settings(max_examples=100)
@given(messages=MESSAGES)
def test_every_request_is_answered_once(messages: list[Any]) -> None:
    with mock.patch("lsprotocol.converters.get_converter", return_value=CONVERTER):
        asked, bodies = anyio.run(play, Path("/nowhere"), messages)
    answers: Counter[int] = Counter()
    for body in bodies:
        assert body["jsonrpc"] == "2.0"
        if "method" not in body:
            assert ("result" in body) != ("error" in body)
            if body.get("id") is not None:
                answers[body["id"]] += 1
    # a second request under an id that is in use is refused without one
    assert set(answers) >= {number for number, count in asked.items() if count}
    assert all(answers[number] <= count for number, count in asked.items() if count)
