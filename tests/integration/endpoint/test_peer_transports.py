"""The same peer over memory, a socket, and the pipes of standard input and output."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.abc import ByteStream

from peer_pairs import TRANSPORTS, Add, Scripted, Sum, Wire, peer_of, transport_pair
from shared.errors import ModelBusy
from shared.protocol.faults import PeerGone
from shared.protocol.framing import HeaderFramer, LineFramer
from shared.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

MIB = 1024 * 1024


@pytest.fixture(params=TRANSPORTS)
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    async with transport_pair(request.param) as pair:
        yield pair


@pytest.mark.parametrize("framer", [LineFramer, HeaderFramer])
async def test_calls_both_ways(ends: tuple[ByteStream, ByteStream], framer: type[LineFramer]) -> None:
    settings = Settings()
    scripts = Scripted(), Scripted()
    left, right = (
        peer_of(stream, script, settings, framer(settings.message_limit))
        for stream, script in zip(ends, scripts, strict=True)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(left.run)
        tasks.start_soon(right.run)
        for number in range(20):
            assert await left.request("add", Add(number, 1), Sum) == Sum(number + 1)
            assert await right.request("add", Add(number, 2), Sum) == Sum(number + 2)
        with pytest.raises(ModelBusy):
            await left.request("busy")
        assert await left.request("talk") == {"done": 3}
        while "after" not in scripts[0].log:  # it comes behind the answer, over threads
            await anyio.sleep(0.01)
        left.close()
    assert right.closed_reason in ("eof", "broken")
    assert [name for name in scripts[0].log if name in ("said", "after")] == ["said", "said", "said", "after"]


async def test_a_large_answer_to_a_peer_that_reads_is_no_stall(ends: tuple[ByteStream, ByteStream]) -> None:
    settings = Settings(stalled_bytes=64 * 1024)
    left, right = (peer_of(stream, Scripted(), settings) for stream in ends)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(left.run)
        tasks.start_soon(right.run)
        answer = await left.request("big", Add(20 * MIB, 0))
        assert len(answer["text"]) == 20 * MIB
        left.close()
    assert right.closed_reason != "client_stalled"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(stalled_bytes=10_000_000, stalled_seconds=0.2),
        Settings(stalled_bytes=1000, stalled_seconds=2.0),
        Settings(stalled_bytes=1000, stalled_seconds=600.0, message_limit=MIB),
    ],
    ids=["no drain in time", "too much unsent", "hard bound"],
)
async def test_a_peer_that_stops_reading_is_given_up(ends: tuple[ByteStream, ByteStream], settings: Settings) -> None:
    script = Scripted()
    peer = peer_of(ends[0], script, settings)
    wire = Wire(ends[1])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.run)
        await wire.send({"id": 1, "method": "sleep"})
        with anyio.fail_after(10):
            while "sleep" not in script.log:
                await anyio.sleep(0.01)
        for _ in range(40):
            peer.notify("text", {"text": "x" * 50_000})
        await peer.closed.wait()
    assert peer.closed_reason == "client_stalled"
    assert "sleep ended" in script.log
    with pytest.raises(PeerGone) as gone:
        await peer.request("question")
    assert gone.value.reason == "client_stalled"


async def test_a_handler_that_keeps_the_loop_is_no_stall_of_the_peer(ends: tuple[ByteStream, ByteStream]) -> None:
    peer = peer_of(ends[0], Scripted(), Settings(stalled_bytes=1000, stalled_seconds=2.0))
    wire = Wire(ends[1])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.run)
        await anyio.wait_all_tasks_blocked()
        for _ in range(6):
            peer.notify("text", {"text": "x" * 2000})
            time.sleep(0.08)
        for _ in range(6):
            assert (await wire.receive())["method"] == "text"
        peer.close()
    assert peer.closed_reason == "closed"


async def test_a_slow_reader_gets_everything(ends: tuple[ByteStream, ByteStream]) -> None:
    settings = Settings(stalled_bytes=100_000, stalled_seconds=20.0)
    peer = peer_of(ends[0], Scripted(), settings)
    wire = Wire(ends[1])
    count = 400

    async def send() -> None:
        for number in range(count):
            peer.notify("text", {"number": number, "text": "x" * 5000})
            await peer.drain()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.run)
        async with anyio.create_task_group() as sending:
            sending.start_soon(send)
            for number in range(count):
                assert (await wire.receive())["params"]["number"] == number
        peer.close()
    assert peer.closed_reason == "closed"


async def test_the_end_of_one_side_ends_calls_of_the_other(ends: tuple[ByteStream, ByteStream]) -> None:
    left, right = (peer_of(stream, Scripted(), Settings()) for stream in ends)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(left.run)
        tasks.start_soon(right.run)

        async def call() -> None:
            with pytest.raises(PeerGone):
                await left.request("sleep")

        async with anyio.create_task_group() as one:
            one.start_soon(call)
            while not right.running:
                await anyio.wait_all_tasks_blocked()
            right.close()
    assert left.closed.is_set()


async def test_random_chunks_change_nothing(ends: tuple[ByteStream, ByteStream]) -> None:
    peer = peer_of(ends[0], Scripted(), Settings())
    text = "é😀漢"
    chosen = random.Random(7)
    lines = b"".join(
        json.dumps(
            {"jsonrpc": "2.0", "id": one, "method": "add", "params": {"a": one, "b": 2, "t": text}}, ensure_ascii=False
        ).encode()
        + b"\n"
        for one in range(20)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.run)
        wire = Wire(ends[1])
        while lines:
            size = chosen.choice((1, 1, 2, 3, 60, 200))
            await ends[1].send(lines[:size])
            lines = lines[size:]
        answers = {one["id"]: one["result"] for one in [await wire.receive() for _ in range(20)]}
        assert answers == {one: {"total": one + 2} for one in range(20)}
        peer.close()
