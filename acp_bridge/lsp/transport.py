"""The editor's pipe for the LSP face: whole bodies in, whole bodies out, and nothing that blocks the loop.

pygls would read and write with blocking calls and lose messages whose header is spelled another way; the framing, the
limits and the accounting of unsent bytes are the product's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import anyio

from shared.protocol.framing import HeaderFramer, Oversized
from shared.protocol.outbox import Outbox

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.settings import Settings

_READ_BYTES = 256 * 1024
#: An editor that is suspended or slow is given this long before the connection counts as dead.
EDITOR_PATIENCE_S = 120.0
#: How long the last answers may take to go out after the editor closed its side.
FLUSH_S = 0.5

OnBody = Callable[[bytes | Oversized], None]


class Pipe:
    """One editor. `put` never waits; `run` reads until the editor closes its side or `close` is called."""

    def __init__(self, stream: ByteStream, settings: Settings) -> None:
        self.limit = settings.message_limit
        self._stream = stream
        self._framer = HeaderFramer(self.limit)
        self._outbox = Outbox(settings.stalled_bytes, EDITOR_PATIENCE_S, settings.stalled_bytes + self.limit)
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None
        self._reading = anyio.CancelScope()
        self._writing = anyio.CancelScope()
        self._closed = False

    def put(self, body: bytes, latest: Hashable = None) -> None:
        """Have a body written, after all that were put before. With `latest` it takes the place of a waiting one."""
        if self._closed:
            return
        now = self._loop.time()
        if self._outbox.overflowing or self._outbox.stalled(now):
            self.close()
            self._writing.cancel()
            return
        self._outbox.put(self._framer.frame(body), now, latest)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """End reading; what was put before is still written, for a bounded time."""
        self._closed = True
        self._reading.cancel()

    async def run(self, on_body: OnBody) -> None:
        """Hand every body to `on_body`, in order. Returns when the editor has gone or `close` was called."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._write)
            await self._read(on_body)
            self._closed = True
            self._outbox.mark(self._writing.cancel)
            self._writing.deadline = self._loop.time() + FLUSH_S
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()

    async def _read(self, on_body: OnBody) -> None:
        with self._reading:
            while True:
                try:
                    data = await self._stream.receive(_READ_BYTES)
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    return
                for body in self._framer.feed(data):
                    on_body(body)

    async def _write(self) -> None:
        with self._writing:
            try:
                while True:
                    if not self._outbox.waiting:
                        self._wake = self._loop.create_future()
                        await self._wake
                    for chunk in self._outbox.take():
                        await self._stream.send(chunk)
                        self._outbox.sent(len(chunk), self._loop.time())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                self.close()
