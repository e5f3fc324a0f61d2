"""Cancel at every message that an editor sees of a turn with tools: stages, thoughts, words, cards, permissions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Client, Emit, FakeDaemon, bridge, result, row, running, says
from counts import scaled
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(60 + scaled(1200))]

Update = dict[str, Any]
#: What each round says, and then calls; the last one only says.
CALLS: list[list[tuple[str, dict[str, Any]]]] = [
    [("read_file", {"path": "app.py"}), ("find_files", {"pattern": "*.py"})],
    [("edit_file", {"path": "app.py", "old": "limit = 1", "new": "limit = 2"})],
    [("run_command", {"command": "cat app.py"}), ("update_plan", {"steps": ["look"]})],
    [],
]
STAGES: list[api.Event] = [
    api.Queued(position=2, ahead=["Zed"]),
    *[api.Loading(fraction=part / scaled(20), model="alpha") for part in range(scaled(20))],
    api.Prefix(reused=0, total=4000),
    *[api.Prefill(done=part * 10, total=4000) for part in range(scaled(40))],
]
WORDS = scaled(60)


class Seen(list[tuple[str, Update]]):
    """The updates of a client; the hook is informed of each one that belongs to the turn, requests included."""

    def __init__(self) -> None:
        super().__init__()
        self.hook: Any = lambda name, message: None

    def append(self, item: tuple[str, Update]) -> None:
        super().append(item)
        if item[1]["sessionUpdate"] not in ("available_commands_update", "config_option_update"):
            self.hook(item[1]["sessionUpdate"], item[1])


class Rounds:
    """The scripted rounds of one turn: those from `hold` on do not end before they are cancelled."""

    def __init__(self, daemon: FakeDaemon, hold: int) -> None:
        self._daemon = daemon
        self._hold = hold
        self._round = 0
        daemon.script = self.script
        daemon.answers["run/hold"] = api.Value()

    async def script(self, params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        number, self._round = self._round, self._round + 1
        for event in STAGES if number == 0 else ():
            emit(event)
        for place in range(WORDS // len(CALLS) + 1):
            emit(api.ReasoningDelta(text=f"[{number}] thought {place} "))
            emit(api.TextDelta(text=f"[{number}] word {place} "))
        if number >= self._hold:
            await cancelled.wait()
            emit(api.TextDelta(text="on its way when the cancel came"))
            return result(params, "cancelled")
        calls = [
            api.ToolCall(id=f"{number}-{place}", name=name, arguments=json.dumps(arguments))
            for place, (name, arguments) in enumerate(CALLS[number])
        ]
        return result(params, "tool_calls" if calls else "stop", tool_calls=calls)


def round_to_hold(message: Update, usages: int) -> int:
    """The first round that must not end, so that the turn still runs when this message is cancelled at."""
    text = (message.get("content") or {}).get("text", "") if isinstance(message.get("content"), dict) else ""
    if marked := re.match(r"\[(\d)\]", text):
        return int(marked[1])
    card = str(message.get("toolCallId") or (message.get("toolCall") or {}).get("toolCallId", ""))
    if called := re.search(r"-(\d+)-call-", card):
        return int(called[1])
    return usages  # stages and the title come before any usage, a plan and a usage after that of their round


async def allow(method: str, params: Update) -> Any:
    assert method == "session/request_permission"
    return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


@pytest.fixture
def agent(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    (short_tmp / "work").mkdir()
    return Bench(short_tmp, row("alpha", tools=True))


async def whole_turn(client: Client, daemon: FakeDaemon, session: str) -> list[tuple[str, int]]:
    """(kind, round to hold) of every message of an undisturbed turn that can still be cancelled at."""
    borders: list[tuple[str, int]] = []
    usages = 0

    def note(name: str, message: Update) -> None:
        nonlocal usages
        usages += name == "usage_update"
        borders.append((name, round_to_hold(message, usages)))

    async def ask(method: str, params: Update) -> Any:
        note("permission", params)
        return await allow(method, params)

    assert isinstance(client.updates, Seen)
    client.updates.hook, client.answer = note, ask
    Rounds(daemon, len(CALLS))
    assert (await client.prompt(session, "go"))["stopReason"] == "end_turn"
    client.updates.hook = lambda name, message: None
    return [border for border in borders if border[1] < len(CALLS)]


async def cancelled_at(client: Client, daemon: FakeDaemon, session: str, border: int, hold: int) -> None:
    """One turn that is cancelled at its message number `border`, and a clean one behind it."""
    count = -1

    def step(*_: Any) -> bool:
        nonlocal count
        count += 1
        if count == border:
            client.notify("session/cancel", {"sessionId": session})
        return count == border

    async def ask(method: str, params: Update) -> Any:
        return {"outcome": {"outcome": "cancelled"}} if step() else await allow(method, params)

    assert isinstance(client.updates, Seen)
    client.updates.hook, client.answer = step, ask
    Rounds(daemon, hold)
    assert (await client.prompt(session, "go"))["stopReason"] == "cancelled", (border, hold)
    client.updates.hook = lambda name, message: None
    ended = len(client.updates)
    of_turn = {update[key] for _, update in client.updates for key in ("messageId", "toolCallId") if key in update}
    last = {update["toolCallId"]: update["status"] for _, update in client.updates if "status" in update}
    assert set(last.values()) <= {"completed", "failed"}, (border, last)
    daemon.script = says("clean")
    assert (await client.prompt(session, "next"))["stopReason"] == "end_turn"
    late = [update for _, update in client.updates[ended:]]
    assert not [update for update in late if {update.get("messageId"), update.get("toolCallId")} & of_turn], border
    assert [update["content"]["text"] for update in late if "chunk" in update["sessionUpdate"]] == ["clean"], border


async def test_every_message_of_a_turn_with_tools(agent: Bench) -> None:
    work = agent.folder / "work"
    async with running(agent) as daemon, bridge(agent) as client:
        client.updates = Seen()
        await client.initialize()

        async def fresh() -> str:
            (work / "app.py").write_text("limit = 1\n")
            return await client.new(str(work))

        borders = await whole_turn(client, daemon, await fresh())
        kinds = {kind for kind, _ in borders}
        wanted = {"tool_call", "tool_call_update", "permission", "agent_thought_chunk", "agent_message_chunk", "plan"}
        assert wanted <= kinds
        assert len(borders) >= scaled(200)
        for place, (_, hold) in enumerate(borders):
            client.updates.clear()
            await cancelled_at(client, daemon, await fresh(), place, hold)
