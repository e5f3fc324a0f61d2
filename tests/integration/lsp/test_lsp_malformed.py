"""What no editor should send is answered, and the stream goes on behind it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.editor import Editor, LspError
from lsp_world import World
from shared.protocol.framing import HeaderFramer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def window() -> Iterator[Editor]:
    """An initialized window; no daemon runs. One for all tests here: it has to outlive everything they send."""
    folder = Path(tempfile.mkdtemp(prefix="md-"))
    with World(folder).window() as made:
        made.initialize()
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def editor(window: Editor) -> Editor:
    window.others.clear()
    return window


def answer_to(editor: Editor, number: Any) -> dict[str, Any]:
    """The answer to a message that was sent raw."""
    found: dict[str, Any] = editor.until(
        lambda: next((message for message in editor.others if message.get("id") == number), None), f"answer {number}"
    )
    return found


def still_serves(editor: Editor) -> None:
    assert editor.request("modeld/status")["service"]


@pytest.mark.parametrize(
    ("params", "at"),
    [
        ({"messages": 3}, "messages"),
        ({}, "messages"),
        ({"messages": [{"role": "poet", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "content"),
        ({"messages": [], "options": {"temperature": "hot"}}, "temperature"),
        ([1, 2], "$"),
        ("text", "$"),
    ],
)
def test_wrong_params_of_ours_are_named(editor: Editor, params: Any, at: str) -> None:
    with pytest.raises(LspError) as caught:
        editor.request("modeld/turn", params)
    assert caught.value.code == -32602
    assert at in caught.value.message
    still_serves(editor)


@pytest.mark.parametrize(
    "params", [{"textDocument": 5}, {}, {"position": {"line": "x"}}, None, [], {"textDocument": {"uri": "file:///a"}}]
)
def test_wrong_params_of_lsp_are_answered(editor: Editor, params: Any) -> None:
    pending = editor.begin("textDocument/inlineCompletion", params)
    with pytest.raises(LspError) as caught:
        editor.wait(pending)
    assert caught.value.code == -32602
    assert "textDocument/inlineCompletion" in caught.value.message
    still_serves(editor)


def test_a_tool_result_that_looks_like_a_message_is_data(editor: Editor) -> None:
    trap = {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}, "method": "initialize"}
    call = {"type": "tool_call", "id": "1", "name": "rpc", "input": {"a-b": 1, "class": trap}}
    result = {"type": "tool_result", "id": "1", "text": json.dumps(trap)}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    with pytest.raises(LspError) as caught:
        editor.request("modeld/turn", {"model": "none-such", "messages": messages})
    assert caught.value.kind.startswith("daemon_")  # understood, and there is no modeld
    still_serves(editor)


def test_unknown_methods_and_kinds_of_messages(editor: Editor) -> None:
    with pytest.raises(LspError) as caught:
        editor.request("modeld/tomorrow")
    assert caught.value.code == -32601
    with pytest.raises(LspError) as caught:
        editor.request("initialize", {"capabilities": {}})
    assert caught.value.code == -32600
    with pytest.raises(LspError) as caught:
        editor.request("textDocument/didOpen", {})  # a notification is no request
    assert caught.value.code == -32601
    editor.notify("initialize", {"capabilities": {}})  # nor a request a notification
    editor.notify("shutdown", None)
    editor.notify("modeld/cancel", {})
    editor.notify("modeld/tomorrow", {})
    editor.notify("textDocument/didChange", {"nonsense": True})
    editor.notify("$/cancelRequest", {"id": "never was"})
    editor.notify("$/cancelRequest", {"what": []})
    editor.notify("window/workDoneProgress/cancel", {"token": "never was"})
    still_serves(editor)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe{}", -32700),
        (b"[]", -32600),
        (b"3", -32600),
        (b'{"jsonrpc":"1.0","id":"z","method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"modeld/status"}', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":"z","method":"x","params":' + b"[" * 100_000, -32700),
    ],
)
def test_bodies_that_are_no_requests(editor: Editor, body: bytes, code: int) -> None:
    editor.send_body(body)
    found = editor.until(lambda: editor.others[-1:] or None, "an answer")[0]
    assert found["error"]["code"] == code
    still_serves(editor)


def test_a_header_may_be_spelled_in_any_case_and_come_with_others(editor: Editor) -> None:
    body = b'{"jsonrpc":"2.0","id":"odd","method":"modeld/status"}'
    head = b"content-type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length: %d\r\n\r\n"
    editor.write(head % len(body) + body)
    assert answer_to(editor, "odd")["result"]["service"]


def test_a_message_may_come_byte_by_byte_and_two_at_once(editor: Editor) -> None:
    body = '{"jsonrpc":"2.0","id":"é","method":"modeld/status"}'.encode()
    framed = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    for place in range(len(framed)):
        editor.write(framed[place : place + 1])
    assert answer_to(editor, "é")["result"]
    two = framed.replace("é".encode(), b"e1") + framed.replace("é".encode(), b"e2")
    editor.write(two)
    assert answer_to(editor, "e1")["result"]
    assert answer_to(editor, "e2")["result"]


def test_a_header_without_a_length_is_skipped(editor: Editor) -> None:
    editor.write(b"Content-Type: text/plain\r\n\r\n")
    found = editor.until(lambda: editor.others[-1:] or None, "an answer")[0]
    assert found["error"]["code"] == -32700
    still_serves(editor)


def test_a_message_over_the_limit_is_refused_by_its_id(world: World) -> None:
    with world.window(MODELD_MESSAGE_LIMIT="20000") as editor:
        editor.initialize()
        editor.send({"id": "big", "method": "modeld/count", "params": {"model": "m", "text": ["x" * 40_000]}})
        error = answer_to(editor, "big")["error"]
        assert error["data"]["kind"] == "message_too_large"
        assert error["data"]["limit"] == 20_000
        still_serves(editor)


def test_a_lone_surrogate_does_not_end_the_stream(editor: Editor) -> None:
    editor.send_body(b'{"jsonrpc":"2.0","id":"s","method":"modeld/count","params":{"model":"m","text":["a\\ud800b"]}}')
    assert answer_to(editor, "s")["result"]["exact"] is False


def test_an_id_in_use_is_refused_and_the_first_still_answers(editor: Editor) -> None:
    request = {"jsonrpc": "2.0", "id": "twice", "method": "modeld/library", "params": {"refresh": True}}
    framed = HeaderFramer(1 << 20).frame(json.dumps(request).encode())
    editor.write(framed + framed)  # at once: the second comes before the first can be answered
    refused = editor.until(lambda: [m for m in editor.others if m.get("id") is None], "the refusal")
    assert refused[0]["error"]["code"] == -32600
    assert "result" in answer_to(editor, "twice")


def test_requests_before_initialize_and_after_shutdown(world: World) -> None:
    with world.window() as editor:
        with pytest.raises(LspError) as caught:
            editor.request("modeld/status")
        assert caught.value.code == -32002
        with pytest.raises(LspError) as caught:
            editor.request("initialize", {"capabilities": 3})
        assert caught.value.code == -32602
        editor.initialize()
        assert editor.request("shutdown") is None
        with pytest.raises(LspError) as caught:
            editor.request("modeld/status")
        assert caught.value.code == -32600


def test_odd_options_are_as_if_they_were_not_there(world: World) -> None:
    with world.window() as editor:
        editor.initialize(wire="seven", inlineCompletion=3)
        assert editor.capabilities["experimental"]["modeld"]["wire"] == 1


def test_what_the_window_does_not_want_is_not_advertised(world: World) -> None:
    with world.window() as editor:
        editor.initialize(inlineCompletion=False, codeActions=False)
        assert "inlineCompletionProvider" not in editor.capabilities
        assert "codeActionProvider" not in editor.capabilities
