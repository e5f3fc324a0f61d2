"""Turns of an LSP window: what is sent, what is streamed, how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.faces.lsp.features import turn as turn_feature
from acp_bridge.faces.lsp.messages import chat_messages
from bridge_fakes import Bench, Emit, FakeDaemon, active, result, row, says, until_cancelled
from lsp_fakes import Window, window
from shared.errors import ContextOverflow, EngineFailed, ModeldError, ModelNotFound, UnsupportedFeature
from shared.protocol import api
from shared.protocol.faults import InternalFault, RequestCancelled

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def pair(short_tmp: Path) -> AsyncIterator[tuple[Window, FakeDaemon]]:
    """A window and the daemon behind it."""
    (short_tmp / "run").mkdir(mode=0o700)
    rows = (row("alpha", tools=True), row("beta", vision=True), row("deep", thinking=True))
    bench = Bench(short_tmp, *rows)
    daemon = FakeDaemon(short_tmp / "run")
    bench.attach(daemon)
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.serve)
        async with window(bench) as editor:
            yield editor, daemon
        daemon.close()
        group.cancel_scope.cancel()


async def test_a_turn_streams_and_ends_with_its_numbers(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = says("Hello", " ", "wörld 🙂")
    turn = editor.turn("alpha")
    ended = await turn.end()
    assert turn.text == "Hello wörld 🙂"
    assert turn.types() == ["generating", "text", "text", "text"]
    assert ended["finishReason"] == "stop"
    assert ended["usage"] == {"reused": 0, "prefilled": 11, "generated": 3}
    assert ended["context"] == 2048
    assert ended["text"] == ""  # it was streamed


async def test_without_a_token_the_text_is_in_the_answer(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.ReasoningDelta(text="hm"))
        emit(api.TextDelta(text="fix: "))
        emit(api.TextDelta(text="it"))
        return result(params)

    daemon.script = script
    ended = await editor.request("modeld/turn", {"model": "alpha", "messages": [{"role": "user", "content": "x"}]})
    assert (ended["text"], ended["reasoning"]) == ("fix: it", "hm")


async def test_the_whole_history_is_sent_in_the_shape_of_the_templates(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    call = {"type": "tool_call", "id": "c1", "name": "read", "input": {"path": "a", "class": {"jsonrpc": "2.0"}}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "ok"}, call]},
        {"role": "user", "content": [{"type": "tool_result", "id": "c1", "text": "data"}]},
        {"role": "user", "content": "and?"},
    ]
    tool = {"name": "read", "description": "reads", "inputSchema": {"type": "object", "properties": {"path": {}}}}
    options = {"temperature": 0.5, "maxTokens": 9, "stop": ["END"], "seed": 3}
    await editor.turn("alpha", messages=messages, tools=[tool], options=options).end()
    sent = daemon.turns[-1]
    assert [message["role"] for message in sent.messages] == ["system", "user", "assistant", "tool", "user"]
    assert sent.messages[1]["content"] == "one two"
    assert sent.messages[2]["reasoning_content"] == "hm"
    function = sent.messages[2]["tool_calls"][0]["function"]
    assert function == {"name": "read", "arguments": '{"class":{"jsonrpc":"2.0"},"path":"a"}'}
    assert sent.messages[3] == {"role": "tool", "tool_call_id": "c1", "name": "read", "content": "data"}
    assert sent.tools[0]["function"]["parameters"] == tool["inputSchema"]
    assert (sent.params.temperature, sent.params.max_tokens, sent.params.stop) == (0.5, 9, ["END"])
    assert sent.allow_load
    assert sent.conversation is None


async def test_the_same_history_gives_the_same_messages(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    first = [{"role": "user", "content": "a"}]
    await editor.turn("alpha", messages=first).end()
    second = [*first, {"role": "assistant", "content": "Hello world"}, {"role": "user", "content": "b"}]
    await editor.turn("alpha", messages=second).end()
    before, after = daemon.turns[-2].messages, daemon.turns[-1].messages
    assert after[: len(before)] == before


async def test_tool_calls_are_streamed_and_whole_at_the_end(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.ToolCallDelta(index=0, id="c", name="read", arguments='{"a":'))
        emit(api.ToolCallDelta(index=0, id="c", name="read", arguments="1}"))
        return result(params, "tool_calls", tool_calls=[api.ToolCall(id="c", name="read", arguments='{"a":1}')])

    daemon.script = script
    turn = editor.turn("alpha")
    ended = await turn.end()
    assert "".join(event["arguments"] for event in turn.events if event["type"] == "tool_call") == '{"a":1}'
    assert ended["toolCalls"] == [{"id": "c", "name": "read", "arguments": '{"a":1}'}]
    assert ended["finishReason"] == "tool_calls"


async def test_images_are_left_out_aloud_where_the_model_has_no_vision(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]}]
    turn = editor.turn("alpha", messages=messages)
    await turn.end()
    assert daemon.turns[-1].messages[0]["content"].startswith("[an image (image/png) that you cannot see]")
    assert [event["text"] for event in turn.events if event["type"] == "notice"] == [
        "The image is left out: alpha does not see images."
    ]
    daemon.push(active=active("beta"))
    daemon.status.active.capabilities["vision"] = True  # type: ignore[union-attr]
    daemon.push()
    await editor.until(lambda: editor.server.window.core_now.daemon.status.active is not None)  # type: ignore[union-attr]
    await editor.turn("beta", messages=messages).end()
    assert daemon.turns[-1].messages[0]["content"][0]["type"] == "image_url"


@pytest.mark.parametrize(
    "error",
    [
        ContextOverflow(context=2048, resident=0, additional=9000),
        EngineFailed(reason="signal 11", generation=4),
        UnsupportedFeature(feature="tools"),
    ],
)
async def test_a_typed_error_arrives_as_it_is(pair: tuple[Window, FakeDaemon], error: ModeldError) -> None:
    editor, daemon = pair

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        raise error

    daemon.script = script
    with pytest.raises(type(error)) as caught:
        await editor.turn("alpha").end()
    assert caught.value.message == error.message
    assert caught.value.data == error.data


async def test_a_history_that_does_not_fit_is_refused_or_trimmed_aloud(
    pair: tuple[Window, FakeDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    editor, daemon = pair

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        if len(params.messages) > 2:
            raise ContextOverflow(context=1000, resident=0, additional=1500)
        emit(api.TextDelta(text="ok"))
        return result(params)

    daemon.script = script
    daemon.count = api.CountResult(each=[10, 700, 600, 100], total=1410)
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    with pytest.raises(ContextOverflow) as caught:
        await editor.turn("alpha", messages=messages).end()
    assert caught.value.context == 1000
    rendered: list[int] = []

    def counting(history: Any, **more: Any) -> Any:
        rendered.append(1)
        return chat_messages(history, **more)

    monkeypatch.setattr(turn_feature, "chat_messages", counting)
    turn = editor.turn("alpha", messages=messages, overflow="trim")
    ended = await turn.end()
    assert len(rendered) == 1, "a long history is put into words once, whatever is left out of it"
    assert ended["leftOut"] == 2
    assert [message["content"] for message in daemon.turns[-1].messages] == ["s", "c"]
    assert "The first 2 messages no longer fit the window of 1,000 tokens" in turn.events[0]["text"]


async def test_a_thinking_level_the_model_does_not_have_is_refused(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    with pytest.raises(UnsupportedFeature):
        await editor.turn("alpha", options={"thinking": "high"}).end()
    await editor.turn("alpha", options={"thinking": "default"}).end()
    assert daemon.turns[-1].params.thinking is None
    await editor.turn("deep", options={"thinking": "high"}).end()
    assert daemon.turns[-1].params.thinking == "high"


async def test_the_pick_answers_a_turn_that_names_no_model(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    await editor.turn("").end()
    assert daemon.turns[-1].model == "alpha"
    await editor.request("modeld/pick", {"model": "beta"})
    await editor.turn("").end()
    assert daemon.turns[-1].model == "beta"
    await editor.turn("", workspace="/elsewhere").end()
    assert daemon.turns[-1].model == "alpha"
    with pytest.raises(ModelNotFound) as caught:
        await editor.request("modeld/pick", {"model": "alfa"})
    assert caught.value.near == ["alpha"]


async def test_never_another_model(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    with pytest.raises(ModeldError) as caught:
        await editor.turn("gone").end()
    assert caught.value.kind == "no_satisfactory_model"
    assert not daemon.turns


@pytest.mark.parametrize(
    ("uri", "workspace", "name"),
    [
        ("file:///home/me/%C3%A4%20b/%E6%BC%A2%20c", "/home/me/ä b/漢 c", "Code (漢 c)"),
        ("vscode-vfs://github/owner/repo", "vscode-vfs://github/owner/repo", "Code (repo)"),
    ],
)
async def test_folders_of_any_name(short_tmp: Path, uri: str, workspace: str, name: str) -> None:
    (short_tmp / "run").mkdir(mode=0o700)
    bench = Bench(short_tmp, row("alpha"), row("beta"))
    async with window(bench, initialize=False) as editor:
        await editor.initialize(workspaceFolders=[{"uri": uri, "name": "x"}])
        assert editor.server.window.workspace == workspace
        assert editor.server.window.name == name
        picked = await editor.request("modeld/pick", {"model": "beta"})
        assert picked == {"model": "beta", "workspace": workspace}
        assert (await editor.request("modeld/models"))["picked"] == "beta"
        event = {"added": [], "removed": [{"uri": uri, "name": "x"}]}
        editor.peer.notify("workspace/didChangeWorkspaceFolders", {"event": event})
        assert (await editor.request("modeld/models"))["picked"] == ""


async def test_a_window_without_a_folder_has_a_name_and_picks_of_its_own(short_tmp: Path) -> None:
    (short_tmp / "run").mkdir(mode=0o700)
    async with window(Bench(short_tmp, row("alpha"), row("beta")), initialize=False) as editor:
        await editor.initialize(workspaceFolders=None, rootUri=None)
        assert editor.server.window.name.startswith("Code (window ")
        await editor.request("modeld/pick", {"model": "beta"})
        assert (await editor.request("modeld/models"))["picked"] == "beta"


# --- cancel ------------------------------------------------------------------------------------


class Stages:
    """A script that stops at one stage until it is cancelled, and says that it was."""

    def __init__(self, event: api.Event | None) -> None:
        self.event = event
        self.reached = anyio.Event()
        self.cancelled = anyio.Event()

    async def __call__(self, params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        if self.event is not None:
            emit(self.event)
        self.reached.set()
        await cancelled.wait()
        self.cancelled.set()
        return result(params, "cancelled", usage=api.Usage(prefilled=5, generated=2))


POINTS: list[api.Event | None] = [
    None,
    api.Queued(position=2, ahead=["Zed"]),
    api.Loading(fraction=0.5, model="alpha"),
    api.Prefix(reused=3, total=9),
    api.Prefill(done=3, total=9),
    api.Thinking(),
    api.Generating(),
    api.TextDelta(text="a"),
    api.ToolCallDelta(index=0, id="c", name="read", arguments="{"),
]


async def test_the_progress_of_a_load_ends_with_the_load_and_not_with_its_turn(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    ends = anyio.Event()

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.Loading(fraction=0.99, model="alpha"))
        emit(api.Prefill(done=1, total=9))
        await ends.wait()
        return result(params)

    daemon.script = script
    turn = editor.turn("alpha")
    await editor.until(lambda: any(one["done"] for one in editor.of("modeld/progress")))
    ends.set()
    assert (await turn.end())["finishReason"] == "stop"
    reported = editor.of("modeld/progress")
    assert [(one["fraction"], one["done"]) for one in reported] == [(0.99, False), (None, True)]


@pytest.mark.parametrize("way", ["request", "token", "model", "all", "progress"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: type(point).__name__)
async def test_a_cancel_reaches_the_daemon_at_every_stage(
    pair: tuple[Window, FakeDaemon], point: api.Event | None, way: str
) -> None:
    editor, daemon = pair
    script = daemon.script = Stages(point)
    turn = editor.turn("alpha", workDoneToken="w")
    with anyio.fail_after(10):
        await script.reached.wait()
        if way == "request":
            editor.cancel(turn)
        elif way == "progress":
            editor.peer.notify("window/workDoneProgress/cancel", {"token": "w"})
        else:
            meant: dict[str, Any] = {"token": {"token": turn.token}, "model": {"model": "alpha"}}.get(way, {})
            assert await editor.request("modeld/cancel", meant) == {"count": 1}
        await script.cancelled.wait()
    if way == "request":
        with pytest.raises(RequestCancelled):
            await turn.end()
        seen = len(turn.events)
        await editor.until(lambda: not editor.server.window.works)
        assert len(turn.events) == seen  # nothing is shown of a request that was answered
    else:
        ended = await turn.end()
        assert ended["finishReason"] == "cancelled"
        assert ended["usage"]["prefilled"] == 5
    assert await editor.request("modeld/cancel", {}) == {"count": 0}
    daemon.script = says("next")
    assert (await editor.turn("alpha").end())["finishReason"] == "stop"  # no cancel sticks


async def test_a_cancel_right_behind_the_request_leaves_nothing(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = until_cancelled
    for _ in range(20):
        turn = editor.turn("alpha")
        while not turn.id:
            await anyio.lowlevel.checkpoint()
        editor.cancel(turn)
        with pytest.raises(RequestCancelled):
            await turn.end()
    await editor.until(lambda: not editor.server.window.works)
    daemon.script = says("next")
    assert (await editor.turn("alpha").end())["finishReason"] == "stop"


async def test_a_cancel_after_the_end_does_nothing(pair: tuple[Window, FakeDaemon]) -> None:
    editor, _ = pair
    turn = editor.turn("alpha")
    await turn.end()
    editor.cancel(turn)
    assert (await editor.turn("alpha").end())["finishReason"] == "stop"


async def test_others_are_answered_while_a_turn_runs(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    script = daemon.script = Stages(api.TextDelta(text="a"))
    turn = editor.turn("alpha")
    await script.reached.wait()
    assert (await editor.request("modeld/models"))["models"]
    assert (await editor.request("modeld/status"))["service"] == "running"
    assert (await editor.request("modeld/library"))["models"]
    editor.cancel(turn)
    await turn.ended.wait()


async def test_two_turns_of_one_window_are_two_turns(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    first_script = daemon.script = Stages(api.TextDelta(text="a"))
    first = editor.turn("alpha")
    await first_script.reached.wait()
    daemon.script = says("second")
    second = editor.turn("alpha")
    assert (await second.end())["finishReason"] == "stop"
    assert second.text == "second"
    assert not first.ended.is_set()
    editor.cancel(first)
    await first.ended.wait()


async def test_a_defect_of_ours_says_only_its_kind(
    pair: tuple[Window, FakeDaemon], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor, _ = pair

    def broken(*_: object, **__: object) -> Any:
        raise ValueError("pr0mpt in the text of an exception")

    monkeypatch.setattr("acp_bridge.faces.lsp.features.turn.chat_messages", broken)
    with pytest.raises(InternalFault) as caught:
        await editor.turn("alpha").end()
    assert "pr0mpt" not in caught.value.message
    said = capsys.readouterr().err
    assert "ValueError in modeld/turn" in said
    assert "pr0mpt" not in said


# --- between two turns -------------------------------------------------------------------------


async def test_a_hold_ends_by_itself_when_the_next_turn_never_comes(
    pair: tuple[Window, FakeDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor that runs the tools says nothing when its user gives up."""
    monkeypatch.setattr("acp_bridge.turn.driver.NEXT_TURN_S", 0.05)
    editor, daemon = pair
    holds: list[api.HoldParams] = []

    async def hold(call: Any) -> api.Value:
        holds.append(call.params(api.HoldParams))
        return api.Value()

    daemon.answers["run/hold"] = hold

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        return result(params, "tool_calls", tool_calls=[api.ToolCall(id="c", name="read", arguments="{}")])

    daemon.script = script
    assert (await editor.turn("alpha", tools=[{"name": "read"}]).end())["finishReason"] == "tool_calls"
    await editor.until(lambda: any(one.release for one in holds))
    assert [one.release for one in holds] == [False, True]


async def test_a_turn_without_tools_beside_an_agent_leaves_its_hold_alone(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    holds: list[api.HoldParams] = []

    async def hold(call: Any) -> api.Value:
        holds.append(call.params(api.HoldParams))
        return api.Value()

    daemon.answers["run/hold"] = hold

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        calls = [api.ToolCall(id="c", name="read", arguments="{}")] if params.tools and len(daemon.turns) == 1 else []
        return result(params, "tool_calls" if calls else "stop", tool_calls=calls)

    daemon.script = script
    tools = [{"name": "read"}]
    await editor.turn("alpha", tools=tools).end()
    await editor.until(lambda: len(holds) == 1)
    await editor.turn("alpha", "a commit message").end()
    assert [one.release for one in holds] == [False]
    await editor.turn("alpha", tools=tools).end()
    await editor.until(lambda: len(holds) == 2)
    assert [one.release for one in holds] == [False, True]
