"""asyncio's transports as anyio byte streams: one wrapper for sockets and for named pipes.

anyio's own stream for Unix sockets registers with the selector again for each receive and has none
for pipes; this one keeps one registration and writes at once when the kernel takes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

#: Received and not yet taken, in bytes, before the peer is asked to wait.
_READ_AHEAD = 1024 * 1024
#: One read, in bytes. asyncio by itself asks for 256 KiB each time and gives most of it back at once, which leaves
#: holes: a daemon grew by a kilobyte a turn.
_READ_BYTES = 16 * 1024
#: Written and not yet taken by the kernel, in bytes, before `send` waits.
_WRITE_AHEAD = 64 * 1024


class StreamProtocol(asyncio.BufferedProtocol):
    """asyncio's half: collects what arrives, knows whether writing may go on."""

    def __init__(self, connected: Callable[[TransportStream], None] | None = None) -> None:
        self.received: deque[bytes] = deque()
        self.buffered = 0
        self._arriving = memoryview(bytearray(_READ_BYTES))
        self.ended = False
        self.error: Exception | None = None
        self.lost = False
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._write_paused = False
        self._read_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the transport is ready."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_AHEAD)
        if self._connected is not None:
            self._connected(TransportStream(transport, self))

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: where to put what arrives."""
        return self._arriving

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: that many bytes arrived."""
        self.received.append(bytes(self._arriving[:nbytes]))
        self.buffered += nbytes
        if self.buffered >= _READ_AHEAD and not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        """asyncio: the peer will send no more; we may still write."""
        self.ended = True
        self._wake_reader()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone in both directions."""
        self.lost = True
        self.error = exc
        self.resume_writing()
        self._wake_reader()

    def pause_writing(self) -> None:
        """asyncio: the kernel takes no more at present."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """asyncio: the kernel takes bytes again."""
        self._write_paused = False
        waiting, self._writers = self._writers, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def readable(self) -> None:
        """Wait for bytes, the end, or the loss of the connection."""
        while not (self.received or self.ended or self.lost):
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    async def writable(self) -> None:
        """Wait until the kernel has taken enough of what was written."""
        while self._write_paused and not self.lost:
            future = asyncio.get_running_loop().create_future()
            self._writers.append(future)
            await future

    def taken(self, size: int) -> None:
        """`size` received bytes have been handed on."""
        self.buffered -= size
        if self._read_paused and self.buffered < _READ_AHEAD // 2 and not self.lost and self._transport is not None:
            self._read_paused = False
            self._transport.resume_reading()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class TransportStream(ByteStream):
    """A connected socket or pipe. `peer_pid` is the other process, where the platform tells (0 if not)."""

    def __init__(self, transport: asyncio.Transport, protocol: StreamProtocol) -> None:
        self.transport = transport
        self.peer_pid = 0
        self._protocol = protocol
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """At most `max_bytes` bytes. Raises EndOfStream, BrokenResourceError, ClosedResourceError."""
        protocol = self._protocol
        if self._closed:
            raise anyio.ClosedResourceError
        if protocol.received:
            await checkpoint()
        await protocol.readable()
        if protocol.received:
            return self._take(max_bytes)
        if self._closed:
            raise anyio.ClosedResourceError
        if protocol.error is not None:
            raise anyio.BrokenResourceError from protocol.error
        raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        """Write all of `item`; returns when the kernel has taken all but a bounded rest."""
        if self._closed:
            raise anyio.ClosedResourceError
        if self._protocol.lost or self.transport.is_closing():
            raise anyio.BrokenResourceError from self._protocol.error
        self.transport.write(item)
        await self._protocol.writable()
        if self._protocol.lost and self._protocol.error is not None:
            raise anyio.BrokenResourceError from self._protocol.error

    async def send_eof(self) -> None:
        """Tell the peer that nothing more comes, where the transport can (pipes cannot)."""
        if self.transport.can_write_eof():
            self.transport.write_eof()

    async def aclose(self) -> None:
        """Close at once; unsent bytes to a peer that does not read are dropped."""
        if not self._closed:
            self._closed = True
            if self.transport.get_write_buffer_size():
                self.transport.abort()
            else:
                self.transport.close()
            self._protocol.ended = True
            self._protocol.eof_received()
        await checkpoint()

    @property
    def extra_attributes(self) -> dict[Any, Callable[[], Any]]:
        """None: callers get what they need from the endpoint."""
        return {}

    def _take(self, max_bytes: int) -> bytes:
        received = self._protocol.received
        first = received.popleft()
        if len(first) > max_bytes:
            received.appendleft(first[max_bytes:])
            first = first[:max_bytes]
        self._protocol.taken(len(first))
        return first
