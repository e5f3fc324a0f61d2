"""Cancel at every border of a turn: always `cancelled`, nothing of the turn after its answer, the next prompt clean."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Emit, FakeDaemon, bridge, result, running, says
from counts import scaled
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

EVENTS: list[api.Event] = [
    api.Queued(position=2, ahead=["Zed"]),
    api.Queued(position=1),
    *[api.Loading(fraction=part / 10, model="alpha") for part in range(11)],
    api.Prefix(reused=0, total=4000),
    *[api.Prefill(done=part * 500, total=4000) for part in range(9)],
    api.Thinking(),
    *[api.ReasoningDelta(text=f"thought {part} ") for part in range(scaled(60))],
    api.Generating(),
    *[api.TextDelta(text=f"word {part} ") for part in range(scaled(120))],
]


def stepping(daemon: FakeDaemon, stop_after: int) -> anyio.Event:
    """Emits so many events, says so, and waits for the cancel."""
    reached = anyio.Event()

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        for event in EVENTS[:stop_after]:
            emit(event)
        await params_sent(daemon)
        reached.set()
        await cancelled.wait()
        for event in EVENTS[stop_after : stop_after + 3]:
            emit(event)  # what was on its way when the cancel came
        return result(params, "cancelled")

    daemon.script = script
    return reached


async def params_sent(daemon: FakeDaemon) -> None:
    for peer in daemon.peers:
        if not peer.closed.is_set():
            await peer.drain()


async def test_every_border(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        for stop_after in range(len(EVENTS) + 1):
            session = await client.new()
            reached = stepping(daemon, stop_after)
            answer: dict[str, Any] = {"session": session}

            async def prompt(into: dict[str, Any]) -> None:
                into.update(await client.prompt(into.pop("session"), "go"))
                into["seen"] = len(client.updates)

            async with anyio.create_task_group() as group:
                group.start_soon(prompt, answer)
                await reached.wait()
                client.notify("session/cancel", {"sessionId": session})
            assert answer["stopReason"] == "cancelled", stop_after
            late = [update["sessionUpdate"] for _, update in client.updates[answer["seen"] :]]
            assert not {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"} & set(late)
        daemon.script = says("clean")
        before = len(client.updates)
        assert (await client.prompt(session, "next"))["stopReason"] == "end_turn"
        kinds = [update["sessionUpdate"] for _, update in client.updates[before:]]
        assert kinds.count("agent_message_chunk") == 1
        assert "tool_call" not in kinds
        open_cards = {
            update["toolCallId"]: update.get("status")
            for _, update in client.updates
            if update["sessionUpdate"] in ("tool_call", "tool_call_update") and "status" in update
        }
        assert "in_progress" not in open_cards.values()


async def test_cancel_request_is_a_cancel_too(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        reached = stepping(daemon, 40)
        numbers: list[int] = []
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                answer = await client.peer.request("session/prompt", params, dict[str, Any], on_id=numbers.append)
                assert answer["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await reached.wait()
            client.notify("$/cancel_request", {"requestId": numbers[0]})


async def test_a_prompt_during_a_turn_cancels_it_and_follows(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        reached = stepping(daemon, 40)
        order: list[str] = []
        async with anyio.create_task_group() as group:

            async def first() -> None:
                order.append((await client.prompt(session, "first"))["stopReason"])

            group.start_soon(first)
            await reached.wait()
            daemon.script = says("second")
            order.append((await client.prompt(session, "second"))["stopReason"])
        assert order == ["cancelled", "end_turn"]
        assert client.text().endswith("second")


async def test_the_cancel_that_an_editor_sends_behind_the_next_prompt_is_the_last_turns(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        reached = stepping(daemon, 40)
        async with anyio.create_task_group() as group:

            async def first() -> None:
                assert (await client.prompt(session, "first"))["stopReason"] == "cancelled"

            async def second() -> None:
                assert (await client.prompt(session, "second"))["stopReason"] == "end_turn"

            group.start_soon(first)
            await reached.wait()
            daemon.script = says("second")
            group.start_soon(second)
            await anyio.lowlevel.checkpoint()
            client.notify("session/cancel", {"sessionId": session})


async def test_a_daemon_that_never_ends_the_turn_is_not_waited_for(bench: Bench) -> None:
    import msgspec

    bench.settings = msgspec.structs.replace(bench.settings, cancel_limit=0.1)
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        reached = anyio.Event()

        async def deaf(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
            del params, emit, cancelled
            reached.set()
            await anyio.sleep_forever()
            raise AssertionError

        daemon.script = deaf
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "go"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await reached.wait()
            client.notify("session/cancel", {"sessionId": session})
