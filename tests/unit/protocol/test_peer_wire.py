"""What a peer puts on the wire, seen by the other end line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from memory_stream import memory_pair
from peer_pairs import Scripted, Sum, Wire, peer_of
from shared.errors import MessageTooLarge
from shared.protocol.faults import BadAnswer, PeerGone, RequestCancelled
from shared.protocol.peer import Peer
from shared.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.unit]

SMALL = Settings(message_limit=2000)


class Side:
    """One peer that runs, its script, and the wire to it."""

    def __init__(self, settings: Settings) -> None:
        left, right = memory_pair()
        self.script = Scripted()
        self.peer = peer_of(left, self.script, settings)
        self.wire = Wire(right)


@asynccontextmanager
async def running(settings: Settings = SMALL) -> AsyncIterator[Side]:
    side = Side(settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        yield side
        await side.wire.stream.aclose()
    assert side.peer.closed.is_set()
    assert side.peer.running == 0 or side.peer.closed_reason is not None


async def test_notifications_precede_the_answer_and_the_hook_follows_it() -> None:
    async with running() as side:
        await side.wire.send({"id": "a", "method": "talk"})
        seen = [await side.wire.receive() for _ in range(5)]
        assert [message.get("method", "answer") for message in seen] == ["said", "said", "said", "answer", "after"]
        assert seen[3] == {"id": "a", "result": {"done": 3}}


async def test_requests_and_notifications_start_in_order_of_arrival() -> None:
    async with running() as side:
        await side.wire.send(
            {"method": "one"},
            {"id": 1, "method": "wait"},
            {"method": "two"},
            {"id": 2, "method": "add", "params": {"a": 1, "b": 2}},
            {"method": "three"},
        )
        assert await side.wire.receive() == {"id": 2, "result": {"total": 3}}
        await anyio.wait_all_tasks_blocked()
        assert side.script.log == ["one", "wait", "two", "add", "three"]
        side.script.release.set()
        assert await side.wire.receive() == {"id": 1, "result": None}


@pytest.mark.parametrize("params", [{"requestId": 1}, {"id": 1}])
async def test_a_cancel_in_the_same_packet_is_not_lost(params: dict[str, int]) -> None:
    async with running() as side:
        await side.wire.send({"id": 1, "method": "sleep"}, {"method": "$/cancel_request", "params": params})
        answer = await side.wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (1, -32800)
        assert side.script.log == ["sleep", "sleep ended"]


async def test_a_handler_that_took_cancelling_over_answers_by_itself() -> None:
    async with running() as side:
        await side.wire.send(
            {"id": "x", "method": "careful"},
            {"method": "$/cancel_request", "params": {"requestId": "x"}},
            {"method": "$/cancel_request", "params": {"requestId": "x"}},
        )
        assert await side.wire.receive() == {"id": "x", "result": {"cancelled": True}}


@pytest.mark.parametrize(
    "params", [{"requestId": 99}, {"requestId": "1"}, {"requestId": [1]}, {}, None, [1], {"requestId": 1.0}]
)
async def test_a_cancel_of_nothing_does_nothing(params: Any) -> None:
    async with running() as side:
        await side.wire.send({"id": 1, "method": "wait"}, {"method": "$/cancel_request", "params": params})
        await anyio.wait_all_tasks_blocked()
        side.script.release.set()
        assert await side.wire.receive() == {"id": 1, "result": None}
        assert side.script.defects == []


@pytest.mark.parametrize(
    ("body", "number", "code"),
    [
        (b"garbage", None, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"add"}]', None, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"add"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"nothing"}', 5, -32601),
        (b'{"jsonrpc":"2.0","id":5,"method":"add","params":{"a":"x","b":1}}', 5, -32602),
        (b'{"jsonrpc":"2.0","id":null,"method":"nothing"}', None, -32601),
        (b'{"jsonrpc":"2.0","id":5,"method":"defect"}', 5, -32603),
        (b'{"jsonrpc":"2.0","id":5,"method":"unencodable"}', 5, -32603),
        (b'{"jsonrpc":"2.0","id":5,"method":"busy"}', 5, -32010),
        (b'{"jsonrpc":"2.0","id":5,"method":"grouped"}', 5, -32010),
        (b'{"jsonrpc":"2.0","id":5,"method":"add","params":{"text":"' + b"x" * 5000 + b'"}}', 5, -32039),
        (b"x" * 5000, None, -32039),
        (b'{"jsonrpc":"2.0","id":5,"method":"big","params":{"a":5000,"b":0}}', 5, -32039),
    ],
)
async def test_bad_messages_are_answered_and_the_stream_goes_on(body: bytes, number: int | None, code: int) -> None:
    async with running() as side:
        await side.wire.send(body)
        answer = await side.wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (number, code)
        await side.wire.send({"id": 6, "method": "add", "params": {"a": 2, "b": 2}})
        assert await side.wire.receive() == {"id": 6, "result": {"total": 4}}


async def test_a_too_large_message_is_named_with_its_numbers() -> None:
    async with running() as side:
        await side.wire.send(b"x" * 5000)
        data = (await side.wire.receive())["error"]["data"]
        assert data == {"kind": "message_too_large", "limit": 2000, "size": 5000}


async def test_a_defect_keeps_its_text_to_this_side() -> None:
    async with running() as side:
        await side.wire.send({"id": 5, "method": "defect"}, {"method": "defect"}, {"id": 6, "method": "add"})
        first = await side.wire.receive()
        assert "secret" not in str(first)
        assert first["error"]["data"] == {"kind": "internal_error", "type": "ZeroDivisionError"}
        assert (await side.wire.receive())["id"] == 6
        assert [method for method, _ in side.script.defects] == ["defect", "defect"]


async def test_an_id_in_use_is_refused_and_the_first_call_is_answered() -> None:
    async with running() as side:
        await side.wire.send({"id": 1, "method": "wait"}, {"id": 1, "method": "add"}, {"id": "1", "method": "busy"})
        answers = [await side.wire.receive(), await side.wire.receive()]
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(None, -32600), ("1", -32010)]
        side.script.release.set()
        assert await side.wire.receive() == {"id": 1, "result": None}
        await side.wire.send({"id": 1, "method": "add", "params": {"a": 1, "b": 1}})
        assert await side.wire.receive() == {"id": 1, "result": {"total": 2}}


async def test_a_waiting_handler_delays_nobody() -> None:
    async with running() as side:
        await side.wire.send(*({"id": number, "method": "wait"} for number in range(50)), {"id": 50, "method": "busy"})
        assert (await side.wire.receive())["id"] == 50
        side.script.release.set()
        assert [(await side.wire.receive())["id"] for _ in range(50)] == list(range(50))


async def test_answers_to_nothing_are_nothing() -> None:
    async with running() as side:
        await side.wire.send(
            {"id": 77, "result": {}}, {"id": None, "error": {"code": -32700, "message": "x"}}, {"id": "1", "result": 1}
        )
        await side.wire.send({"id": 6, "method": "busy"})
        assert (await side.wire.receive())["id"] == 6


async def ask(peer: Peer, outcome: list[object], **options: Any) -> None:
    try:
        outcome.append(await peer.request("question", {"a": 1}, **options))
    except Exception as error:
        outcome.append(error)


async def test_our_call_and_its_answer_on_the_wire() -> None:
    async with running() as side, anyio.create_task_group() as tasks:
        outcome: list[object] = []
        tasks.start_soon(ask, side.peer, outcome)
        assert await side.wire.receive() == {"id": 1, "method": "question", "params": {"a": 1}}
        await side.wire.send({"id": 1, "type": "response", "result": {"b": 2}})
        await anyio.wait_all_tasks_blocked()
        assert outcome == [{"b": 2}]


async def test_an_answer_of_another_shape_is_named() -> None:
    async with running() as side, anyio.create_task_group() as tasks:
        outcome: list[object] = []
        tasks.start_soon(lambda: ask(side.peer, outcome, result_type=Sum))
        await side.wire.receive()
        await side.wire.send({"id": 1, "result": {"total": "many"}})
        await anyio.wait_all_tasks_blocked()
        assert isinstance(outcome[0], BadAnswer)
        assert outcome[0].method == "question"


async def test_a_call_of_ours_over_the_limit_is_not_sent() -> None:
    async with running() as side:
        with pytest.raises(MessageTooLarge):
            await side.peer.request("question", {"text": "x" * 3000})
        with pytest.raises(MessageTooLarge):
            side.peer.notify("question", {"text": "x" * 3000})
        side.peer.notify("next")
        assert (await side.wire.receive())["method"] == "next"


async def test_cancelling_the_wait_tells_the_peer_and_a_late_answer_is_nothing() -> None:
    async with running() as side:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, side.peer, [])
                assert (await side.wire.receive())["method"] == "question"
                scope.cancel()
        assert await side.wire.receive() == {"method": "$/cancel_request", "params": {"requestId": 1}}
        await side.wire.send({"id": 1, "result": {}}, {"id": 2, "method": "busy"})
        assert (await side.wire.receive())["id"] == 2


async def test_cancel_by_number_goes_on_waiting() -> None:
    async with running() as side, anyio.create_task_group() as tasks:
        outcome: list[object] = []
        ids: list[int] = []
        tasks.start_soon(lambda: ask(side.peer, outcome, on_id=ids.append))
        await side.wire.receive()
        side.peer.cancel(ids[0])
        assert (await side.wire.receive())["params"] == {"requestId": 1}
        await side.wire.send({"id": 1, "error": {"code": -32800, "message": "Request cancelled"}})
        await anyio.wait_all_tasks_blocked()
        assert isinstance(outcome[0], RequestCancelled)


async def test_the_end_of_the_peer_ends_everything() -> None:
    side = Side(SMALL)
    outcome: list[object] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        tasks.start_soon(ask, side.peer, outcome)
        await side.wire.send({"id": 1, "method": "sleep"}, {"id": 2, "method": "ask"})
        await anyio.wait_all_tasks_blocked()
        await side.wire.stream.aclose()
    assert side.script.log == ["sleep", "ask", "sleep ended"]
    assert isinstance(outcome[0], PeerGone)
    assert side.peer.closed_reason == "eof"
    side.peer.notify("nobody")
    with pytest.raises(PeerGone):
        await side.peer.request("question")
    with pytest.raises(PeerGone):
        await side.peer.drain()


async def test_what_came_right_before_the_end_is_still_answered() -> None:
    side = Side(SMALL)
    await side.wire.send({"id": 1, "method": "add", "params": {"a": 1, "b": 2}}, {"id": 2, "method": "sleep"})
    await side.wire.stream.send_eof()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        assert await side.wire.receive() == {"id": 1, "result": {"total": 3}}
        with pytest.raises(anyio.EndOfStream):
            await side.wire.receive()


async def test_close_flushes_what_was_put() -> None:
    side = Side(SMALL)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        side.peer.notify("last", {})
        side.peer.close()
        assert (await side.wire.receive())["method"] == "last"
    assert side.peer.closed_reason == "closed"


async def test_run_can_be_cancelled_and_leaves_nothing() -> None:
    side = Side(SMALL)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        await side.wire.send({"id": 1, "method": "sleep"})
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert side.peer.closed.is_set()
    assert side.script.log == ["sleep", "sleep ended"]


async def test_only_the_latest_of_a_kind_waits() -> None:
    side = Side(SMALL)
    for number in range(5):
        side.peer.notify("status", {"number": number}, latest="status")
        side.peer.notify("text", {"number": number})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        await side.peer.drain()
        seen = [await side.wire.receive() for _ in range(6)]
        side.peer.close()
    assert [message["params"]["number"] for message in seen] == [4, 0, 1, 2, 3, 4]


async def test_a_hook_is_not_run_for_a_peer_that_is_gone() -> None:
    side = Side(SMALL)
    ran: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side.peer.run)
        await side.wire.send({"id": 1, "method": "wait"})
        await anyio.wait_all_tasks_blocked()
        side.script.calls["wait"].after_response(lambda: ran.append("hook"))
        await side.wire.stream.aclose()
    assert ran == []


async def test_an_async_notification_handler_is_refused() -> None:
    async def wrong(note: object) -> None:
        raise AssertionError(note)

    with pytest.raises(TypeError):
        Peer(
            memory_pair()[0],
            peer_of(memory_pair()[0], Scripted(), SMALL)._framer,
            on_request=Scripted().answer,
            on_notification=wrong,  # type: ignore[arg-type]
            settings=SMALL,
        )
