"""Whatever an editor sends: nothing is raised, and every request with a usable id is answered exactly once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import converters

from acp_bridge.lsp import wire
from acp_bridge.lsp.server import LspServer
from shared.errors import DaemonNotRunning
from shared.paths import DataRoot
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


class Sink:
    """A pipe that keeps what is put."""

    limit = 1 << 26

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def put(self, body: bytes, latest: object = None) -> None:
        del latest
        self.bodies.append(json.loads(body))

    def close(self) -> None:
        pass


async def play(folder: Path, messages: list[Any]) -> tuple[Counter[int], list[dict[str, Any]]]:
    """Ids asked, and everything that was put."""
    server = LspServer(lambda name: None, DataRoot(folder), Settings())  # type: ignore[arg-type, return-value]
    sink = Sink()
    protocol = server._protocol
    protocol.pipe = sink  # type: ignore[assignment]
    protocol.on_initialize = lambda params, capabilities: None
    server.window.become_unusable(DaemonNotRunning())
    async with asyncio.TaskGroup() as group:
        server.window.group = _Spawner(group)  # type: ignore[assignment]
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}
        asked: Counter[int] = Counter()
        for message in [hello, *messages]:
            if isinstance(message, dict) and isinstance(message.get("id"), int) and message.get("jsonrpc") == "2.0":
                asked[message["id"]] += not isinstance(message.get("id"), bool) and "method" in message
            protocol.receive(json.dumps(message).encode())
        for _ in range(20):
            await asyncio.sleep(0)
    return asked, sink.bodies


class _Spawner:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start_soon(self, work: Any, *arguments: Any) -> None:
        self._group.create_task(work(*arguments))


CONVERTER = converters.get_converter()  # what makes a server slow to make


@pytest.mark.timeout(90)
@settings(max_examples=100)
@given(messages=MESSAGES)
def test_every_request_is_answered_once(messages: list[Any]) -> None:
    with mock.patch("lsprotocol.converters.get_converter", return_value=CONVERTER):
        asked, bodies = asyncio.run(play(Path("/nowhere"), messages))
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
