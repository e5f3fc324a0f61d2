"""Every rule of a turn, over every face of the bridge: what holds in Zed holds in VS Code."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest

from acp_bridge.models.view import Advertised
from acp_bridge.turn.sentences import BASE_MODEL, NO_WORD, ONLY_THOUGHTS, REPEATED, images_left_out_text, left_out_text
from bridge_fakes import Bench, Emit, FakeDaemon, active, result, row, running
from shared.errors import ContextOverflow, DaemonNotRunning, EngineFailed, NoSatisfactoryModel
from shared.protocol import api
from shared.protocol.requests import Call
from turn_faces import FACES, Face

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
ROWS = (row("alpha", tools=True), row("beta"), row("eyes", vision=True), row("deep", thinking=True))


@pytest.fixture(params=sorted(FACES))
def face(request: pytest.FixtureRequest) -> type[Face]:
    """One face of the bridge after the other."""
    return FACES[request.param]


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.inventory.advertised = Advertised(rows=ROWS)
    return bench


def with_vision(name: str) -> api.ActiveModel:
    return msgspec.structs.replace(active(name), capabilities={"vision": True})


def holding(daemon: FakeDaemon) -> list[api.HoldParams]:
    """The holds that the daemon is asked for from now on, and their releases."""
    holds: list[api.HoldParams] = []

    async def hold(call: Call) -> api.Value:
        holds.append(call.params(api.HoldParams))
        return api.Value()

    daemon.answers["run/hold"] = hold
    return holds


def calls_once(daemon: FakeDaemon, before_second: Callable[[], Awaitable[None]]) -> None:
    """The model calls a tool in its first round, and ends in its second, once `before_second` returns."""
    rounds: list[int] = []

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        rounds.append(1)
        if len(rounds) == 1:
            call = api.ToolCall(id="c1", name="list_folder", arguments="{}")
            return result(params, "tool_calls", tool_calls=[call])
        await before_second()
        emit(api.TextDelta(text="done"))
        return result(params)

    daemon.script = script


# --- prepare -----------------------------------------------------------------------------------


async def test_a_missing_model_is_looked_for_once_more_and_then_an_error(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        assert (await editor.ask("hi", model="beta")).finish == "stop"
        bench.inventory.advertised = Advertised(rows=ROWS[:1])
        bench.core.models.touch()
        await editor.until(lambda: len(bench.core.models.rows) == 1)
        assert bench.inventory.refreshed == 0
        ended = await editor.ask("again")
        if face.name != "lsp":  # the conversation keeps its pick; the other face names the model each time
            assert isinstance(ended.error, NoSatisfactoryModel)
        else:
            assert isinstance((await editor.ask("again", model="beta")).error, NoSatisfactoryModel)
        assert bench.inventory.refreshed == 1
        assert {turn.model for turn in daemon.turns} <= {"alpha", "beta"}


async def test_a_miss_while_modeld_is_away_says_so(bench: Bench, face: type[Face]) -> None:
    bench.inventory.advertised = Advertised(reason="modeld is not running")
    async with face.open(bench) as editor:
        ended = await editor.ask("hi")
        assert isinstance(ended.error, DaemonNotRunning)
        assert bench.inventory.refreshed == 1


async def test_a_cold_library_is_waited_for_before_a_model_is_missing(
    bench: Bench, face: type[Face], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    look = bench.inventory.look

    def slow(*seen: Any) -> Advertised:
        looked.wait(10)
        return look(*seen)

    monkeypatch.setattr(bench.inventory, "look", slow)
    async with running(bench) as daemon, face.open(bench) as editor, anyio.create_task_group() as group:

        async def ask() -> None:
            assert (await editor.ask("hi")).finish == "stop"

        group.start_soon(ask)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        looked.set()
    assert bench.inventory.refreshed == 0, "nothing was missing: the first look was not over"
    assert [turn.model for turn in daemon.turns] == ["alpha"]


async def test_a_message_with_an_image_loads_first_to_know_whether_it_is_seen(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:

        async def load(call: Call) -> api.LoadResult:
            daemon.push(active=with_vision("eyes"))
            return api.LoadResult(active=with_vision("eyes"), generation=1, loaded=True)

        daemon.answers["model/load"] = load
        await editor.ask("no image", model="eyes")
        assert "model/load" not in daemon.methods
        ended = await editor.ask("what is it?", model="eyes", image=True)
        assert [method for method in daemon.methods if method != "ping"][-2:] == ["model/load", "session/turn"]
        assert [part["type"] for part in daemon.turns[-1].messages[-1]["content"]] == ["image_url", "text"]
        assert "left out" not in ended.reported


async def test_an_image_that_is_not_seen_is_left_out_and_said_once(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        ended = await editor.ask("what is it?", model="alpha", image=True)
        assert images_left_out_text(1, "alpha") in ended.reported
        assert "that you cannot see]" in daemon.turns[-1].messages[-1]["content"]
        assert "left out" not in (await editor.ask("and now?", model="alpha")).reported


async def test_a_thinking_level_that_the_model_lacks_is_reported(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        ended = await editor.ask("hi", model="alpha", thinking="high")
        assert "alpha has no thinking level 'high' (it has: none)" in ended.reported
        assert all(turn.params.thinking is None for turn in daemon.turns)
        assert "thinking level" not in (await editor.ask("again", model="alpha")).reported
        assert "thinking level" not in (await editor.ask("think", model="deep", thinking="high")).reported
        assert daemon.turns[-1].params.thinking == "high"


# --- fit and request ---------------------------------------------------------------------------


async def test_what_does_not_fit_is_counted_left_out_reported_and_asked_again(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        await editor.ask("one", model="alpha")
        await editor.ask("two", model="alpha")
        tries: list[int] = []

        async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            tries.append(len(params.messages))
            if len(tries) == 1:
                raise ContextOverflow(context=1000, resident=0, additional=1500)
            emit(api.TextDelta(text="ok"))
            return result(params)

        daemon.script = script
        each = [10] * (len(daemon.turns[-1].messages) - 3) + [400, 400, 400, 400, 100]
        daemon.count = api.CountResult(each=each, total=sum(each))
        ended = await editor.ask("three", model="alpha")
        assert ended.finish == "stop"
        assert tries[1] == tries[0] - 4
        assert left_out_text(4, 1000) in ended.reported
        assert daemon.methods.count("model/count") == 1


async def test_a_last_message_that_does_not_fit_is_the_models_error(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:

        async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            raise ContextOverflow(context=1000, resident=0, additional=1500)

        daemon.script = script
        daemon.count = api.CountResult(each=[10, 1500], total=1510)
        ended = await editor.ask("long", model="alpha")
        assert isinstance(ended.error, ContextOverflow)
        assert ended.error.context == 1000
        assert len(daemon.turns) == 1


async def test_an_error_that_a_cancel_caused_is_the_cancel(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        reached = anyio.Event()

        async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            reached.set()
            await cancelled.wait()
            raise EngineFailed(reason="killed", generation=1)

        daemon.script = script
        ended = await editor.ask_and_cancel("go on", reached)
        assert (ended.finish, ended.error) == ("cancelled", None)

        async def fails(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            raise EngineFailed(reason="killed", generation=1)

        daemon.script = fails
        assert isinstance((await editor.ask("again", model="alpha")).error, EngineFailed), "and else it is an error"


# --- tools -------------------------------------------------------------------------------------


async def test_the_model_is_held_between_two_rounds_of_tools(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        holds = holding(daemon)
        held: list[list[bool]] = []

        async def look() -> None:
            await editor.until(lambda: bool(holds))
            held.append([hold.release for hold in holds])

        calls_once(daemon, look)
        ended = await editor.ask_with_tool("look")
        assert ended.finish == "stop"
        assert held == [[False]], "held through the second request, and not yet given up"
        await editor.until(lambda: any(hold.release for hold in holds))
        assert [(hold.model, hold.release) for hold in holds] == [("alpha", False), ("alpha", True)]
        assert len({hold.run for hold in holds}) == 1


async def test_a_turn_without_tools_holds_nothing(bench: Bench, face: type[Face]) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        holds = holding(daemon)
        await editor.ask("hi")
        await editor.ask("again")
        assert holds == []
        assert daemon.methods.count("session/turn") == 2


async def test_a_base_model_is_reported_at_its_first_answer(bench: Bench, face: type[Face]) -> None:
    bench.inventory.advertised = Advertised(rows=(*ROWS, row("base", has_template=False)))
    async with running(bench), face.open(bench) as editor:
        reported = BASE_MODEL.format(model="base")
        assert reported in (await editor.ask("hi", model="base")).reported
        assert reported not in (await editor.ask("again", model="base")).reported
    async with running(bench), face.open(bench) as editor:
        assert "base model" not in (await editor.ask("hi", model="alpha")).reported, "the control"


# --- how it ends -------------------------------------------------------------------------------


async def test_an_answer_that_became_a_loop_is_reported_once_and_gone_on_with(bench: Bench, face: type[Face]) -> None:
    async def loops(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.TextDelta(text="round and round "))
        return result(params, "length", ended_by="repetition")

    async def at_a_bound(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.TextDelta(text="a long story"))
        return result(params, "length")

    async with running(bench) as daemon, face.open(bench) as editor:
        daemon.script = loops
        ended = await editor.ask("hi")
        assert ended.reported.count(REPEATED) == 1
        assert ended.finish == {"lsp": "length"}.get(face.name, "stop")
        daemon.script = at_a_bound
        after = await editor.ask("go on")
        assert REPEATED not in after.reported
        said = [message["content"] for message in daemon.turns[-1].messages if message["role"] == "assistant"]
        assert said == ["round and round "], "the model is sent what it said, and not the remark"


WORDLESS: list[tuple[list[api.Event], str]] = [
    ([], NO_WORD),
    ([api.TextDelta(text=" \n")], NO_WORD),
    ([api.ReasoningDelta(text="hm")], ONLY_THOUGHTS),
]


@pytest.mark.parametrize(("events", "sentence"), WORDLESS)
async def test_an_answer_without_a_word_says_so(
    bench: Bench, face: type[Face], events: list[api.Event], sentence: str
) -> None:
    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        for event in events:
            emit(event)
        return result(params)

    async with running(bench) as daemon, face.open(bench) as editor:
        daemon.script = script
        assert (await editor.ask("hi")).reported.count(sentence) == 1


# --- what others do ----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["another", "me"])
async def test_a_switch_by_another_client_is_reported_once(bench: Bench, face: type[Face], by: str) -> None:
    async with running(bench) as daemon, face.open(bench) as editor:
        await editor.ask("hi", model="alpha")
        daemon.push(active=active("alpha"))
        core: Any = bench.core
        await editor.until(lambda: core.daemon.status.active is not None)
        holder = editor.me if by == "me" else "Zed"
        busy = api.BusyOperation(operation="turn", stage="decode", holder=holder, age_s=0.1)
        daemon.push(active=active("beta"), busy=busy)
        await editor.until(lambda: core.daemon.status.active.name == "beta")
        for text in ("one", "two"):
            await editor.ask(text, model="alpha")
        reported = editor.reported().count(f"{holder} switched from alpha to beta.")
        assert reported == (1 if by == "another" else 0)
