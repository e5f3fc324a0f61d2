"""Two connected streams inside one process: the transport of tests, and of a daemon called in process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

#: As much as a Unix socket's default buffer holds, in bytes.
BUFFER_BYTES = 212_992


def memory_pair(buffer_bytes: int = BUFFER_BYTES) -> tuple[ByteStream, ByteStream]:
    """Both ends. Each direction holds `buffer_bytes` before `send` waits. Made inside a running loop."""
    there, back = _Pipe(buffer_bytes), _Pipe(buffer_bytes)
    return MemoryStream(there, back), MemoryStream(back, there)


class _Pipe:
    """One direction."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = bytearray()
        self.ended = False
        self.broken = False
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


class MemoryStream(ByteStream):
    """One end, with the semantics of a socket."""

    def __init__(self, source: _Pipe, sink: _Pipe) -> None:
        self._source = source
        self._sink = sink
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """At most `max_bytes` bytes. Raises EndOfStream, ClosedResourceError."""
        await checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._source.data:
                data = bytes(self._source.data[:max_bytes])
                del self._source.data[:max_bytes]
                self._source.wake()
                return data
            if self._source.ended:
                raise anyio.EndOfStream
            await self._source.wait()

    async def send(self, item: bytes) -> None:
        """Returns when all of `item` is in the buffer. Raises BrokenResourceError, ClosedResourceError."""
        await checkpoint()
        rest = memoryview(item)
        while rest:
            if self._closed or self._sink.ended:
                raise anyio.ClosedResourceError
            if self._sink.broken:
                raise anyio.BrokenResourceError
            room = self._sink.limit - len(self._sink.data)
            if room > 0:
                self._sink.data += rest[:room]
                rest = rest[room:]
                self._sink.wake()
            else:
                await self._sink.wait()

    async def send_eof(self) -> None:
        """The other end reads what is left, then the end."""
        self._sink.ended = True
        self._sink.wake()

    async def aclose(self) -> None:
        """Both directions end; the other end can still read what was sent."""
        self._closed = True
        self._source.broken = True
        self._sink.ended = True
        self._source.wake()
        self._sink.wake()
        await checkpoint()

    @property
    def extra_attributes(self) -> dict[Any, Callable[[], Any]]:
        """None."""
        return {}
