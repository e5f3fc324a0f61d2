"""Two ends of one connection for tests: over memory, a socket, and the pipes of a spawned process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteStream

from memory_stream import memory_pair
from shared.endpoint.stdio import stdio_stream
from shared.errors import ModelBusy
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import Framer, LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call
from shared.settings import Settings

TRANSPORTS = ["memory", "socket", "stdio"]


class Add(msgspec.Struct):
    """Params of `add`."""

    a: int
    b: int


class Sum(msgspec.Struct):
    """Result of `add`."""

    total: int


class Scripted:
    """A server for tests: what it does is named by the method, what it saw can be read afterwards."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.calls: dict[str, Call] = {}
        self.defects: list[tuple[str, BaseException]] = []
        self.release = anyio.Event()

    def notified(self, note: Notification) -> None:
        """Keep the order of arrival; `defect` raises."""
        self.log.append(note.method)
        if note.method == "defect":
            raise ZeroDivisionError("the notification's secret text")

    def defect(self, method: str, error: BaseException) -> None:
        """What Peer reports."""
        self.defects.append((method, error))

    async def answer(self, call: Call) -> Any:
        """One method, one behaviour."""
        self.log.append(call.method)
        self.calls[call.method] = call
        handler: Callable[[Call], Any] | None = getattr(self, f"_{call.method}", None)
        if handler is None:
            raise MethodNotFound(method=call.method)
        return await handler(call)

    async def _add(self, call: Call) -> Sum:
        numbers = call.params(Add)
        return Sum(numbers.a + numbers.b)

    async def _busy(self, call: Call) -> None:
        raise ModelBusy(operation="turn", holder="Zed", since=1.5, queued=2)

    async def _grouped(self, call: Call) -> None:
        async with anyio.create_task_group():
            raise ModelBusy(operation="turn", holder="Zed", since=1.5, queued=2)

    async def _defect(self, call: Call) -> None:
        raise ZeroDivisionError("the request's secret text")

    async def _unencodable(self, call: Call) -> object:
        return object()

    async def _sleep(self, call: Call) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.log.append("sleep ended")

    async def _careful(self, call: Call) -> dict[str, bool]:
        stop = anyio.Event()
        call.on_cancel(stop.set)
        await stop.wait()
        return {"cancelled": call.cancelled}

    async def _wait(self, call: Call) -> None:
        await self.release.wait()

    async def _talk(self, call: Call) -> dict[str, int]:
        for number in range(3):
            call.peer.notify("said", {"number": number})
        call.after_response(lambda: call.peer.notify("after", {}))
        return {"done": 3}

    async def _big(self, call: Call) -> dict[str, str]:
        return {"text": "x" * call.params(Add).a}

    async def _ask(self, call: Call) -> Any:
        return await call.peer.request("question", {"of": call.id})


@asynccontextmanager
async def transport_pair(kind: str) -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    """Both ends, closed afterwards."""
    if kind == "memory":
        left, right = memory_pair()
    elif kind == "socket":
        left, right = await _socket_pair()
    else:
        left, right = _stdio_pair()
    try:
        yield left, right
    finally:
        await left.aclose()
        await right.aclose()


async def _socket_pair() -> tuple[ByteStream, ByteStream]:
    import asyncio

    from shared.endpoint.transport import StreamProtocol, TransportStream

    streams = []
    for end in socket.socketpair():
        end.setblocking(False)
        transport, protocol = await asyncio.get_running_loop().create_connection(StreamProtocol, sock=end)
        streams.append(TransportStream(transport, protocol))
    return streams[0], streams[1]


def _stdio_pair() -> tuple[ByteStream, ByteStream]:
    there_read, there_write = os.pipe()
    back_read, back_write = os.pipe()
    return stdio_stream(there_write, back_read), stdio_stream(back_write, there_read)


def peer_of(stream: ByteStream, script: Scripted, settings: Settings, framer: Framer | None = None) -> Peer:
    """A peer that does what the script says."""
    return Peer(
        stream,
        framer or LineFramer(settings.message_limit),
        on_request=script.answer,
        on_notification=script.notified,
        settings=settings,
        on_defect=script.defect,
    )


class Wire:
    """The other end by hand: raw lines out, decoded lines in."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._framer = LineFramer(2**30)
        self._lines: list[bytes] = []

    async def send(self, *messages: dict[str, Any] | bytes) -> None:
        """All in one write; dicts get their `jsonrpc`."""
        data = b""
        for message in messages:
            body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            data += body + b"\n"
        await self.stream.send(data)

    async def receive(self) -> dict[str, Any]:
        """The next message. Raises EndOfStream."""
        while not self._lines:
            for body in self._framer.feed(await self.stream.receive()):
                assert isinstance(body, bytes)
                self._lines.append(body)
        message: dict[str, Any] = json.loads(self._lines.pop(0))
        assert message.pop("jsonrpc") == "2.0"
        return message
