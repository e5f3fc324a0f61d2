"""The editor's pipe for the LSP face: whole bodies in, whole bodies out, and nothing that blocks the loop.

pygls would read and write with blocking calls and lose messages whose header is spelled another way; reading, limits
and the rule for a reader that stalls are those of every connection (`shared.protocol.stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import anyio

from shared.protocol.framing import HeaderFramer, Oversized
from shared.protocol.stream import EDITOR_PATIENCE_S, ClosedReason, Sender, read_bodies

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.settings import Settings

OnBody = Callable[[bytes | Oversized], None]


class Pipe:
    """One editor. `put` never waits; `run` reads until the editor closes its side or `close` is called."""

    def __init__(self, stream: ByteStream, settings: Settings) -> None:
        self.limit = settings.message_limit
        self._stream = stream
        self._framer = HeaderFramer(self.limit)
        self._sender = Sender(stream, self._framer, settings, self._ended, EDITOR_PATIENCE_S)
        self._reading = anyio.CancelScope()
        self._closed = False

    def put(self, body: bytes, latest: Hashable = None) -> None:
        """Have a body written, after all that were put before. With `latest` it takes the place of a waiting one."""
        if not self._closed:
            self._sender.put(body, latest)

    def close(self) -> None:
        """End reading; what was put before is still written, for a bounded time."""
        self._closed = True
        self._reading.cancel()

    async def run(self, on_body: OnBody) -> None:
        """Hand every body to `on_body`, in order. Returns when the editor has gone or `close` was called."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._sender.run)
                with self._reading:
                    await read_bodies(self._stream, self._framer, on_body, lambda: not self._closed)
                self._closed = True
                self._sender.finish()
        finally:
            self._sender.end()
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    def _ended(self, reason: ClosedReason) -> None:
        del reason
        self.close()
