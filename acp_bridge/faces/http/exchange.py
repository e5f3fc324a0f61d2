"""One request and its answer: the body in, pieces out, and the cancel of a client that hangs up or stops reading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from acp_bridge.cancel import Cancel
from acp_bridge.faces.http.protocol import answer
from acp_bridge.faces.http.protocol.errors import Refusal, Reply, reply_to, stopped
from shared.diagnosis.defect import reporter
from shared.errors import MessageTooLarge, ModeldError
from shared.protocol.faults import InternalFault

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from shared.settings import Settings

#: A client on this machine sends a body in a moment; a slow one is a defect, or wants to hold a connection.
BODY_S = 30.0
#: A stream says what it waits for after this long without a piece of the answer, and again each time: some programs
#: and proxies give up a connection on which nothing comes.
COMMENT_S = 10.0
#: Where the connection of a request leaves what closes it.
ABORT = "abort"
JSON = "application/json"
EVENTS = "text/event-stream"
report_defect = reporter("acp-bridge")


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises MessageTooLarge past `limit` bytes, Refusal for one that comes too slowly."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise MessageTooLarge(limit=limit, size=int(declared))
    parts, size = [], 0
    with anyio.move_on_after(BODY_S) as scope:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > limit:
                raise MessageTooLarge(limit=limit, size=size)
    if scope.cancelled_caught:
        raise Refusal(408, f"the body did not come within {BODY_S:.0f} s", code="request_timeout")
    return b"".join(parts)


class Output:
    """The answer on its way. `piece` never waits: pieces are sent by `run`, those that came meanwhile at once.

    A client that does not take them is given up as an editor is: by the bytes it left, or the time without any taken.
    """

    def __init__(self, send: Send, settings: Settings, cancel: Cancel, headers: Mapping[str, str]) -> None:
        self.started = False
        self.stalled = False  # the client does not take what it is sent
        self.waits_for = "waiting for the model"
        self._send = send
        self._settings = settings
        self._cancel = cancel
        self._headers = dict(headers)
        self._parts: list[bytes] = []
        self._size = 0
        self._moved = anyio.Event()
        self._ended = False
        self._whole = False

    def piece(self, data: bytes) -> None:
        """A part of a stream of events."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._settings.stalled_bytes:
            self._stall()
        self._moved.set()

    def end(self) -> None:
        """After the last piece."""
        self._ended = True
        self._moved.set()

    async def reply(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer in JSON; of a stream that has begun, its last event."""
        if self.started or self._parts:
            self.piece(answer.event(body))
            return
        self.started = self._whole = True
        data = msgspec.json.encode(body)
        await self._start(status, JSON, {**self._headers, **(headers or {}), "content-length": str(len(data))})
        await self._give({"type": "http.response.body", "body": data})

    async def run(self) -> None:
        """Send the pieces until `end`. A comment where none comes for a while."""
        while not (self._ended and not self._parts):
            quiet = True
            with anyio.move_on_after(COMMENT_S):
                await self._moved.wait()
                quiet = False
            self._moved = anyio.Event()
            if quiet:
                self.piece(answer.comment(self.waits_for))
            await self._flush()
        if self.started and not self._whole and not self.stalled:
            await self._give({"type": "http.response.body", "body": b""})

    async def _flush(self) -> None:
        data, self._parts, self._size = b"".join(self._parts), [], 0
        if not data or self.stalled:
            return
        if not self.started:
            self.started = True
            await self._start(200, EVENTS, {**self._headers, "cache-control": "no-cache"})
        await self._give({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        raw.append((b"content-type", kind.encode()))
        await self._give({"type": "http.response.start", "status": status, "headers": raw})

    async def _give(self, message: dict[str, Any]) -> None:
        with anyio.move_on_after(self._settings.stalled_seconds) as scope:
            await self._send(message)
        if scope.cancelled_caught:
            self._stall()

    def _stall(self) -> None:
        self.stalled = True
        self._cancel.request()


Work = Callable[[Cancel, Output], Awaitable[None]]


class Running(Response):
    """An answer that is being made: `work` runs while its client is there, and is cancelled when that hangs up.

    `cancels` holds the cancels of everything that runs, for a stop of the server. `streams`: pieces may come.
    """

    def __init__(
        self,
        work: Work,
        settings: Settings,
        cancels: set[Cancel],
        headers: Mapping[str, str],
        wait_s: Callable[[], float],
        *,
        streams: bool,
    ) -> None:
        super().__init__()
        self._work = work
        self._settings = settings
        self._cancels = cancels
        self._extra = headers
        self._wait_s = wait_s
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See starlette: the response as an ASGI application."""
        cancel = Cancel()
        output = Output(send, self._settings, cancel, self._extra)
        self._cancels.add(cancel)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_until_gone, receive, cancel)
                if self._streams:
                    await self._streamed(output, cancel)
                else:
                    await self._answered(output, cancel)
                if output.stalled:
                    await _cut(scope, receive)
                group.cancel_scope.cancel()
        finally:
            self._cancels.discard(cancel)

    async def _streamed(self, output: Output, cancel: Cancel) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(output.run)
            await self._answered(output, cancel)
            output.end()

    async def _answered(self, output: Output, cancel: Cancel) -> None:
        """The work, and what went wrong with it in the protocol's shape."""
        try:
            await self._work(cancel, output)
        except Refusal as error:
            reply = error.reply
        except ModeldError as error:
            reply = reply_to(error, self._wait_s())
        except Exception as error:  # a defect of ours costs this answer alone; its text may hold a prompt
            report_defect("a request", error)
            reply = reply_to(InternalFault(type=type(error).__name__))
        else:
            if not cancel.requested:
                return
            reply = stopped()  # to a client that has gone nothing is sent
        await tell(output, reply)


async def tell(output: Output, reply: Reply) -> None:
    """An error, wherever the answer stands."""
    await output.reply(reply.status, reply.body, reply.headers)


async def _cut(scope: Scope, receive: Receive) -> None:
    """Close the connection at once: what the system still holds for it would never be taken."""
    abort = scope.get("state", {}).get(ABORT)
    if abort is not None:
        abort()
        while (await receive())["type"] != "http.disconnect":
            pass


async def _until_gone(receive: Receive, cancel: Cancel) -> None:
    """The body has been read: what comes next is that the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel.request()


__all__ = ["ClientDisconnect", "Output", "Running", "Work", "read_body", "tell"]
