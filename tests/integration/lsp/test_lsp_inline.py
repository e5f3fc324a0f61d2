"""Ghost text: newest wins, here and in the daemon; silent whenever the service is not there for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, FakeDaemon, active, row, until_cancelled
from lsp_fakes import Window, window
from shared.errors import ModelNotActive
from shared.protocol import api
from shared.protocol.faults import RequestCancelled
from shared.protocol.requests import Call

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
URI = "file:///home/me/proj/a.py"
TEXT = "def add(a, b):\n    \n\nprint(add(1, 2))\n"


class Fills:
    """`completion/fill` of a daemon."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.params: list[api.FillParams] = []
        self.text = "return a + b"
        self.hangs = False
        self.cancelled = 0
        self.error: Exception | None = None
        self.arrived = anyio.Event()
        daemon.answers["completion/fill"] = self

    async def __call__(self, call: Call) -> api.FillResult:
        self.params.append(call.params(api.FillParams))
        self.arrived.set()
        if self.error is not None:
            raise self.error
        if self.hangs:
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled += 1
        return api.FillResult(text=self.text, usage=api.Usage(generated=4))


@pytest.fixture
async def trio(short_tmp: Path) -> AsyncIterator[tuple[Window, FakeDaemon, Fills]]:
    (short_tmp / "run").mkdir(mode=0o700)
    bench = Bench(short_tmp, row("coder", fim=True), row("chat"))
    daemon = FakeDaemon(short_tmp / "run")
    daemon.status.active = active("coder")
    bench.attach(daemon)
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.serve)
        async with window(bench) as editor:
            await editor.request("modeld/models")
            await editor.until(lambda: editor.server.window.core_now.daemon.status is not None)  # type: ignore[union-attr]
            item = {"uri": URI, "languageId": "python", "version": 1, "text": TEXT}
            editor.peer.notify("textDocument/didOpen", {"textDocument": item})
            yield editor, daemon, Fills(daemon)
        daemon.close()
        group.cancel_scope.cancel()


def at(line: int, character: int, kind: int = 2, **context: Any) -> dict[str, Any]:
    return {
        "textDocument": {"uri": URI},
        "position": {"line": line, "character": character},
        "context": {"triggerKind": kind, **context},
    }


async def complete(editor: Window, params: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await editor.request("textDocument/inlineCompletion", params)
    items: list[dict[str, Any]] = answer["items"]
    return items


async def test_the_text_comes_with_a_range_at_the_cursor(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, _, fills = trio
    (item,) = await complete(editor, at(1, 4))
    assert item["insertText"] == "return a + b"
    assert item["range"] == {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 4}}
    asked = fills.params[0]
    assert (asked.model, asked.prefix, asked.suffix) == ("coder", "def add(a, b):\n    ", "\n\nprint(add(1, 2))\n")
    assert asked.params.temperature == 0.0


async def test_changes_and_positions_beyond_the_basic_plane(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, _, fills = trio
    change = {
        "range": {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 4}},
        "text": "s = '🙂é'; ",
    }
    document = {"uri": URI, "version": 2}
    editor.peer.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
    await complete(editor, at(1, 15))  # the smiling face counts two
    assert fills.params[0].prefix == "def add(a, b):\n    s = '🙂é'; "


async def test_what_the_editors_own_list_selected_stands_there_already(
    trio: tuple[Window, FakeDaemon, Fills],
) -> None:
    editor, _, fills = trio
    span = {"start": {"line": 3, "character": 0}, "end": {"line": 3, "character": 5}}
    fills.text = "(1)"
    (item,) = await complete(editor, at(3, 5, kind=1, selectedCompletionInfo={"range": span, "text": "printer"}))
    assert item["insertText"] == "printer(1)"
    assert item["range"] == span
    assert fills.params[0].prefix.endswith("\nprinter")


async def test_the_newest_request_ends_the_older_here_and_in_the_daemon(
    trio: tuple[Window, FakeDaemon, Fills],
) -> None:
    editor, _, fills = trio
    fills.hangs = True
    older: list[list[dict[str, Any]]] = []

    async def ask() -> None:
        older.append(await complete(editor, at(1, 4, kind=1)))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with anyio.fail_after(10):
            await fills.arrived.wait()
        fills.hangs = False
        (item,) = await complete(editor, at(1, 4, kind=1))
    assert item["insertText"]
    assert older == [[]]
    await editor.until(lambda: fills.cancelled == 1)


async def test_a_cancel_reaches_the_daemon(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, _, fills = trio
    fills.hangs = True
    numbers: list[int] = []
    failed: list[Exception] = []

    async def ask() -> None:
        try:
            await editor.peer.request("textDocument/inlineCompletion", at(1, 4, kind=1), on_id=numbers.append)
        except RequestCancelled as error:
            failed.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with anyio.fail_after(10):
            await fills.arrived.wait()
        editor.peer.notify("$/cancelRequest", {"id": numbers[0]})
    assert len(failed) == 1
    await editor.until(lambda: fills.cancelled == 1)


async def test_many_typed_triggers_ask_once(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, _, fills = trio
    answers: list[list[dict[str, Any]]] = []

    async def ask() -> None:
        answers.append(await complete(editor, at(1, 4)))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ask)
            await anyio.lowlevel.checkpoint()
    assert len(fills.params) == 1
    assert sorted(len(answer) for answer in answers) == [0] * 9 + [1]


async def test_silent_when_the_service_cannot(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, daemon, fills = trio
    window_status = editor.server.window.core_now.daemon  # type: ignore[union-attr]

    async def seen(**changes: Any) -> None:
        daemon.push(**changes)
        generation = daemon.status.generation
        await editor.until(lambda: window_status.status is not None and window_status.status.generation == generation)

    await seen(active=active("chat"), generation=10)  # knows no middle
    assert await complete(editor, at(1, 4, kind=1)) == []
    await seen(active=None, generation=11)
    assert await complete(editor, at(1, 4, kind=1)) == []
    busy = api.BusyOperation(operation="turn", stage="generating", holder="Zed", age_s=1.0)
    await seen(active=active("coder"), busy=busy, state="Busy", generation=12)
    assert await complete(editor, at(1, 4, kind=1)) == []
    assert not fills.params
    await seen(active=active("coder"), busy=None, state="Ready", generation=13)
    fills.error = ModelNotActive(requested="coder")
    assert await complete(editor, at(1, 4, kind=1)) == []
    daemon.hung = True
    for peer in daemon.peers:
        peer.close()
    await editor.until(lambda: window_status.status is None)
    assert await complete(editor, at(1, 4, kind=1)) == []


async def test_silent_while_a_turn_of_this_window_runs(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, daemon, fills = trio
    daemon.script = until_cancelled
    turn = editor.turn("coder")
    await editor.until(lambda: turn.events)
    assert await complete(editor, at(1, 4, kind=1)) == []
    assert not fills.params
    editor.cancel(turn)
    await turn.ended.wait()


async def test_nothing_inside_a_word_unless_it_is_asked_for(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, _, fills = trio
    assert await complete(editor, at(0, 5)) == []
    assert not fills.params
    fills.text = "_all"
    assert await complete(editor, at(0, 5, kind=1))


async def test_a_document_that_was_never_opened(trio: tuple[Window, FakeDaemon, Fills]) -> None:
    editor, _, _ = trio
    params = {**at(0, 0), "textDocument": {"uri": "untitled:Untitled-1"}}
    assert await complete(editor, params) == []


@pytest.mark.parametrize(
    ("opened", "asked"),
    [
        ("file:///home/me/pr%C3%B6j%20x/a%20b.py", "file:///home/me/pr%C3%B6j%20x/a%20b.py"),
        ("file:///c%3A/pröj x/蛇.py", "file:///c%3A/pr%C3%B6j%20x/%E8%9B%87.py"),
        ("untitled:Untitled%201", "untitled:Untitled%201"),
    ],
)
async def test_paths_with_spaces_and_other_letters(
    trio: tuple[Window, FakeDaemon, Fills], opened: str, asked: str
) -> None:
    editor, _, fills = trio
    item = {"uri": opened, "languageId": "python", "version": 1, "text": "def mul(a, b):\n    "}
    editor.peer.notify("textDocument/didOpen", {"textDocument": item})
    (found,) = await complete(editor, {**at(1, 4), "textDocument": {"uri": asked}})
    assert found["insertText"] == "return a + b"
    assert fills.params[0].prefix == "def mul(a, b):\n    "
