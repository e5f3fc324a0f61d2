"""Two blocking descriptors as one byte stream, on every platform: a thread reads, another writes.

The event loop never blocks on them, nor does the end of the process: both threads are daemons and
hold nothing that the interpreter's shutdown waits for.
"""

from __future__ import annotations

import asyncio
import os
import queue
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

_READ_BYTES = 65536
#: Read and not yet taken, in bytes, before the reader thread pauses.
_READ_AHEAD = 1024 * 1024
#: POSIX promises that a writable pipe takes this much without blocking.
if sys.platform == "win32":
    _ATOMIC_BYTES = 0
else:
    _ATOMIC_BYTES = select.PIPE_BUF


class ThreadedStream(ByteStream):
    """Reads `source` and writes `output`, which stay blocking. Made inside a running loop."""

    def __init__(self, source: int, output: int, at_end: Callable[[], None] | None = None) -> None:
        """`at_end` is called in the reading thread once the source has ended, and may stay there."""
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._reader = _Reader(source, self._loop, at_end)
        self._writer = _Writer(output, self._loop)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """At most `max_bytes` bytes. Raises EndOfStream, ClosedResourceError."""
        if self._closed:
            raise anyio.ClosedResourceError
        return await self._reader.take(max_bytes)

    async def send(self, item: bytes) -> None:
        """Returns when the descriptor has taken all of `item`. Raises BrokenResourceError.

        When it is cancelled, `item` may still be written, and before anything that comes later.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            await self._writer.write(item)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Close the output, once nothing is being written to it."""
        self._writer.close()

    async def aclose(self) -> None:
        """Stop. A thread that is blocked in the editor's pipe is left to the end of the process."""
        if not self._closed:
            self._closed = True
            self._reader.stop()
            self._writer.close()
        await checkpoint()

    @property
    def extra_attributes(self) -> dict[Any, Callable[[], Any]]:
        """None."""
        return {}


class _Reader:
    def __init__(self, source: int, loop: asyncio.AbstractEventLoop, at_end: Callable[[], None] | None = None) -> None:
        self._source = source
        self._at_end = at_end
        self._loop = loop
        self._received: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None
        self._room = threading.Event()
        self._room.set()
        self._thread: threading.Thread | None = None

    async def take(self, max_bytes: int) -> bytes:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stdio reader", daemon=True)
            self._thread.start()
        if self._received:
            await checkpoint()
        while not self._received:
            if self._ended:
                raise anyio.EndOfStream
            self._waiting = self._loop.create_future()
            await self._waiting
        first = self._received.popleft()
        if len(first) > max_bytes:
            self._received.appendleft(first[max_bytes:])
            first = first[:max_bytes]
        self._size -= len(first)
        if self._size < _READ_AHEAD:
            self._room.set()
        return first

    def stop(self) -> None:
        self._deliver(b"")

    def _deliver(self, data: bytes) -> None:
        if data:
            self._received.append(data)
            self._size += len(data)
            if self._size >= _READ_AHEAD:
                self._room.clear()
        else:
            self._ended = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _run(self) -> None:
        while True:
            self._room.wait()
            data = _read(self._source)
            try:
                self._loop.call_soon_threadsafe(self._deliver, data)
            except RuntimeError:
                return  # the loop has closed: nobody reads any more
            if not data:
                if self._at_end is not None:
                    self._at_end()
                return


class _Writer:
    def __init__(self, output: int, loop: asyncio.AbstractEventLoop) -> None:
        self._output = output
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._busy = 0
        self._thread: threading.Thread | None = None
        self._poll = None
        self._closed = False
        if sys.platform != "win32":
            self._poll = select.poll()
            self._poll.register(output, select.POLLOUT)

    async def write(self, item: bytes) -> None:
        rest = self._write_now(item)
        if not rest:
            await checkpoint()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stdio writer", daemon=True)
            self._thread.start()
        done = self._loop.create_future()
        self._busy += 1
        self._jobs.put((rest, done))
        await done

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            os.close(self._output)
        else:
            self._jobs.put(None)  # the thread closes it, after what it is writing

    def _write_now(self, item: bytes) -> bytes:
        """Write what certainly does not block; gives the rest. A thread costs more than a token does."""
        if self._closed:
            raise BrokenPipeError
        if self._busy or self._poll is None or len(item) > _ATOMIC_BYTES or not self._poll.poll(0):
            return item
        try:
            return item[os.write(self._output, item) :]
        except BlockingIOError:
            return item

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            item, done = job
            error: OSError | None = None
            try:
                _write_all(self._output, item)
            except OSError as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._finish, done, error)
            except RuntimeError:
                break  # the loop has closed: nobody waits any more
        os.close(self._output)

    def _finish(self, done: asyncio.Future[None], error: OSError | None) -> None:
        self._busy -= 1
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def _read(descriptor: int) -> bytes:
    """Some bytes, or none at the end; a pipe that the editor broke has ended."""
    while True:
        try:
            return os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            _wait(descriptor, write=False)  # the editor made its end non-blocking, and so ours
        except OSError:
            return b""


def _write_all(descriptor: int, item: bytes) -> None:
    rest = memoryview(item)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait(descriptor, write=True)


def _wait(descriptor: int, *, write: bool) -> None:
    if sys.platform == "win32":
        raise BlockingIOError(f"descriptor {descriptor} does not block")  # pipes there always do
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if write else select.POLLIN)
    poll.poll()
