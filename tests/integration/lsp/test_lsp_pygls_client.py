"""The face seen by a client that is not ours: pytest-lsp's, over a spawned bridge."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from lsprotocol import types
from pytest_lsp import LanguageClient

from lsp_world import World
from modeld_process import Modeld

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
URI = "file:///home/me/proj/a.py"


class Client(LanguageClient):
    """Keeps partial results, which the stock client takes for work-done progress and refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Any] = []
        self.pushed: list[str] = []


def make_client() -> Client:
    client = Client()

    def progress(params: types.ProgressParams) -> None:
        client.parts.append(params)

    client.protocol.fm.features[types.PROGRESS] = progress
    for name in ("modelsChanged", "statusChanged", "progress", "notice"):
        method = f"modeld/{name}"

        def pushed(params: Any, method: str = method) -> None:
            client.pushed.append(method)

        client.feature(method)(pushed)
    return client


async def ask(client: Client, method: str, params: dict[str, Any]) -> Any:
    return await client.protocol.send_request_async(method, params)  # type: ignore[no-untyped-call]


@pytest.fixture
async def modeld(world: World) -> AsyncIterator[Modeld]:
    async with world.scripted(replies=[{"pieces": ["return ", "a"]}]) as running:
        yield running


@pytest.fixture
async def client(world: World, modeld: Modeld) -> AsyncIterator[Client]:
    del modeld
    made = make_client()
    work = world.folder / "work"
    work.mkdir()
    await made.start_io(sys.executable, "-m", "acp_bridge", "lsp", env=world.environ, cwd=str(work))
    await made.initialize_session(
        types.InitializeParams(
            process_id=os.getpid(),
            capabilities=types.ClientCapabilities(),
            workspace_folders=[types.WorkspaceFolder(uri=work.as_uri(), name="work")],
        )
    )
    yield made
    await made.shutdown_session()
    await made.stop()  # type: ignore[no-untyped-call]


async def test_a_turn_with_partial_results(client: Client) -> None:
    assert client.capabilities is not None
    params = {"model": "alpha", "messages": [{"role": "user", "content": "hi"}], "partialResultToken": "p1"}
    with anyio.fail_after(30):
        ended = await ask(client, "modeld/turn", params)
    assert ended.finishReason == "stop"
    assert [part.token for part in client.parts if part.value["type"] == "text"] == ["p1", "p1"]
    assert "modeld/statusChanged" in client.pushed


async def test_inline_completion(client: Client) -> None:
    with anyio.fail_after(30):
        await ask(client, "modeld/load", {"model": "alpha"})
        while "modeld/modelsChanged" not in client.pushed:
            await anyio.sleep(0.01)
        client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(URI, "python", 1, "def f(a):\n    \n"))
        )
        while True:
            completed = await client.text_document_inline_completion_async(
                types.InlineCompletionParams(
                    context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Invoked),
                    text_document=types.TextDocumentIdentifier(URI),
                    position=types.Position(1, 4),
                )
            )
            assert isinstance(completed, types.InlineCompletionList)
            if completed.items:
                break
            await anyio.sleep(0.02)  # the status that says what is loaded is on its way
        assert completed.items[0].insert_text == "return a"
        assert completed.items[0].range == types.Range(types.Position(1, 4), types.Position(1, 4))


async def test_a_cancel_is_answered_with_lsps_own_code(client: Client) -> None:
    params = {"model": "alpha", "messages": [{"role": "user", "content": "hi"}]}
    number = "turn-1"
    future = client.protocol.send_request_async("modeld/load", {"model": "beta"}, msg_id=number)  # type: ignore[no-untyped-call]
    client.cancel_request(types.CancelParams(id=number))
    with anyio.fail_after(30):
        try:
            await future
        except Exception as error:
            assert getattr(error, "code", None) == -32800  # noqa: PT017 - it may also have been done already
        ended = await ask(client, "modeld/turn", {**params, "consent": "always"})
    assert ended.finishReason == "stop"
