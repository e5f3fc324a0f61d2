"""First contact: calls both ways, order on the wire, cancelling."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from memory_stream import memory_pair
from shared.errors import ModelBusy
from shared.protocol.faults import InvalidParams, MethodNotFound, PeerGone, RequestCancelled
from shared.protocol.framing import LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call
from shared.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.unit]


class Add(msgspec.Struct):
    a: int
    b: int


class Sum(msgspec.Struct):
    total: int


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def answer(call: Call) -> Any:
    match call.method:
        case "add":
            numbers = call.params(Add)
            call.peer.notify("progress", {"of": call.id})
            return Sum(numbers.a + numbers.b)
        case "busy":
            raise ModelBusy(operation="turn", holder="Zed", since=1.5, queued=2)
        case "sleep":
            await anyio.sleep_forever()
    raise MethodNotFound(method=call.method)


class Pair:
    def __init__(self) -> None:
        self.seen: list[Notification] = []
        left, right = memory_pair()
        settings = Settings()
        self.client = Peer(
            left,
            LineFramer(settings.message_limit),
            on_request=answer,
            on_notification=self.seen.append,
            settings=settings,
        )
        self.server = Peer(
            right,
            LineFramer(settings.message_limit),
            on_request=answer,
            on_notification=lambda _: None,
            settings=settings,
        )


async def test_calls_notifications_errors_and_the_end() -> None:
    pair = Pair()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.client.run)
        tasks.start_soon(pair.server.run)
        assert await pair.client.request("add", Add(1, 2), Sum) == Sum(3)
        assert [note.method for note in pair.seen] == ["progress"]
        with pytest.raises(ModelBusy) as busy:
            await pair.client.request("busy")
        assert busy.value.holder == "Zed"
        with pytest.raises(MethodNotFound):
            await pair.client.request("nothing")
        with pytest.raises(InvalidParams) as wrong:
            await pair.client.request("add", {"a": "x", "b": 1})
        assert wrong.value.at == "$.a"
        with anyio.move_on_after(0.01):
            await pair.client.request("sleep")
        ids: list[int] = []

        async def cancelled() -> None:
            with pytest.raises(RequestCancelled):
                await pair.client.request("sleep", on_id=ids.append)

        async with anyio.create_task_group() as one:
            one.start_soon(cancelled)
            await anyio.wait_all_tasks_blocked()
            pair.client.cancel(ids[0])
        assert pair.server.running == 0
        pair.client.close()
    assert pair.client.closed.is_set()
    assert pair.server.closed.is_set()
    assert (pair.client.closed_reason, pair.server.closed_reason) == ("closed", "eof")
    with pytest.raises(PeerGone):
        await pair.client.request("add", Add(1, 2))
