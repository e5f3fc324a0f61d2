"""Frames over a byte stream, for every JSON-RPC engine here: how bodies are read, how frames are written, and when the
other side counts as stalled. These rules stand here once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal

import anyio

from shared.protocol.framing import Framer, Oversized
from shared.protocol.outbox import Outbox

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.settings import Settings

#: Why a connection ended: the other side closed it, we did, it broke, or its reader lagged too far.
ClosedReason = Literal["eof", "closed", "broken", "client_stalled"]
#: As much as is read at once.
READ_BYTES = 256 * 1024
#: How long the last answers may take to go out after the other side stopped sending.
FLUSH_SECONDS = 0.5
#: An editor that is suspended or slow is given this long before its connection counts as dead.
EDITOR_PATIENCE_S = 120.0


async def read_bodies(
    stream: ByteStream, framer: Framer, take: Callable[[bytes | Oversized], None], goes_on: Callable[[], bool]
) -> ClosedReason | None:
    """Hand every body to `take`, in order, while `goes_on`. Gives how the stream ended, None when it did not."""
    while goes_on():
        try:
            data = await stream.receive(READ_BYTES)
        except anyio.EndOfStream:
            return "eof"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return "broken"
        for body in framer.feed(data):
            take(body)
    return None


class Sender:
    """Writes bodies in the order they were put. `on_end(reason)` is called when the stream breaks or its reader stalls.

    `patience` is how long a reader that takes nothing is waited for; `Outbox` has the exact rule.
    """

    def __init__(
        self,
        stream: ByteStream,
        framer: Framer,
        settings: Settings,
        on_end: Callable[[ClosedReason], None],
        patience: float | None = None,
    ) -> None:
        self._stream = stream
        self._framer = framer
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(
            settings.stalled_bytes,
            settings.stalled_seconds if patience is None else patience,
            settings.stalled_bytes + settings.message_limit,
        )
        self._scope = anyio.CancelScope()
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._judges = True

    def put(self, body: bytes, latest: Hashable = None) -> None:
        """Have a body written. Never waits. `latest`: it takes the place of an unwritten one of the same key."""
        if self._ended:
            return
        self._outbox.put(self._framer.frame(body), self._loop.time(), latest)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        if self._outbox.overflowing:
            self._give_up()
        elif self._judges:
            self._watch()

    def mark(self, callback: Callable[[], None]) -> None:
        """Call `callback` once everything put so far has been taken by the stream."""
        self._outbox.mark(callback)

    async def run(self) -> None:
        """Write until the stream breaks, the reader stalls, or what was put before `finish` is written."""
        with self._scope:
            try:
                while True:
                    if not self._outbox.waiting:
                        if self._wake is None or self._wake.done():
                            self._wake = self._loop.create_future()
                        await self._wake
                    for chunk in self._outbox.take():
                        await self._stream.send(chunk)
                        self._outbox.sent(len(chunk), self._loop.time())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                self._on_end("broken")

    def finish(self) -> None:
        """Let `run` end: at once when all is written, else within a bounded time."""
        self.judge_no_more()
        self._outbox.mark(self._scope.cancel)
        self._scope.deadline = self._loop.time() + FLUSH_SECONDS

    def judge_no_more(self) -> None:
        """The connection ends anyway: a reader that lags now is no longer given up for it."""
        self._judges = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Nothing more is put; safe to call again."""
        self._ended = True
        self.judge_no_more()

    def abandon(self) -> None:
        """Write nothing more: the reader is given up."""
        self.end()
        self._scope.cancel()

    def _give_up(self) -> None:
        self.abandon()
        self._on_end("client_stalled")

    def _watch(self) -> None:
        """Have one timer look whether the reader stalls. It costs nothing per message.

        Only the timer judges: it runs after the writer had its turn, however long a handler kept the loop while it
        put things.
        """
        at = self._outbox.check_at()
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._judges or not self._outbox.unsent:
            return
        if self._outbox.stalled(self._loop.time()):
            self._give_up()
        else:
            self._watch()
