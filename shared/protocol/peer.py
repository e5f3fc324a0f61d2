"""One JSON-RPC 2.0 connection, both directions, over any byte stream.

One reader that never waits for a handler; each request in a task of its own, started in order of
arrival; notifications handled one after the other in that same order, without a task; one writer.
Everything that is put goes out in the order of the puts, so that a handler's notifications
are on the wire before its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from shared.diagnosis.defect import reporter, sole
from shared.errors import MessageTooLarge, ModeldError
from shared.protocol.faults import BadAnswer, InternalFault, InvalidRequest, PeerGone, RequestCancelled, error_from_wire
from shared.protocol.framing import Framer, Oversized
from shared.protocol.message import (
    Malformed,
    Message,
    Notification,
    RequestId,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse,
    salvage,
)
from shared.protocol.requests import Call, CancelParams, Pending, cancel_params
from shared.protocol.stream import ClosedReason, Sender, read_bodies

if TYPE_CHECKING:
    from anyio.abc import ByteStream, TaskGroup

    from shared.settings import Settings

OnRequest = Callable[[Call], Awaitable[Any]]
OnNotification = Callable[[Notification], None]
OnDefect = Callable[[str, BaseException], None]


class Peer:
    """The other side of a connection. `run` serves it; the other methods may be used beside that.

    `on_request` answers with a Struct, a dict or None, or raises ModeldError. `on_notification` is a
    plain function and must be quick. An exception of another type is a defect: the peer sees
    `internal_error`, `on_defect(method, exception)` sees the rest (by default, stderr does).
    """

    def __init__(
        self,
        stream: ByteStream,
        framer: Framer,
        *,
        on_request: OnRequest,
        on_notification: OnNotification,
        settings: Settings,
        cancel_method: str = "$/cancel_request",
        on_defect: OnDefect | None = None,
    ) -> None:
        if iscoroutinefunction(on_notification):
            raise TypeError("on_notification must be a plain function: notifications are handled in order")
        self.closed = anyio.Event()
        self._stream = stream
        self._framer = framer
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_defect = on_defect or reporter("modeld")
        self._cancel_method = cancel_method
        self._loop = asyncio.get_running_loop()
        self._sender = Sender(stream, framer, settings, self.close)
        self._pending = Pending()
        self._running: dict[RequestId, Call] = {}
        self._ahead = 0  # handlers and notifications that were scheduled and have not started
        self._reason: ClosedReason | None = None
        self._reading = anyio.CancelScope()

    @property
    def closed_reason(self) -> ClosedReason | None:
        """Why the connection ended or is ending; None while it lives."""
        return self._reason

    @property
    def running(self) -> int:
        """How many requests of the peer are being answered."""
        return len(self._running)

    async def run(self) -> None:
        """Serve the connection until the other side ends it or `close` does; then nothing of it is left.

        Handlers still running are cancelled, our own calls fail with PeerGone, what was put is
        flushed for a bounded time, and the stream is closed.
        """
        try:
            async with anyio.create_task_group() as writer:
                writer.start_soon(self._sender.run)
                try:
                    async with anyio.create_task_group() as handlers:
                        await self._read(handlers)
                        await self._end_handlers(handlers)
                finally:
                    self._end(self._reason or "closed")
                self._sender.finish()
        finally:
            self._end("closed")
            self._sender.end()
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
            self.closed.set()

    def close(self, reason: ClosedReason = "closed") -> None:
        """End the connection; `run` returns soon. What was put before is flushed, unless the peer stalled."""
        self._conclude(reason)
        self._reading.cancel()
        if reason == "client_stalled":
            self._sender.abandon()

    def refuse(self, error: ModeldError) -> None:
        """Tell a peer that has asked nothing why its connection ends, and end it."""
        self._put(encode_error(None, error))
        self.close()

    async def request(
        self,
        method: str,
        params: Any = None,
        result_type: Any = Any,
        *,
        on_id: Callable[[int], None] | None = None,
    ) -> Any:
        """Call the peer and wait for its answer, as `result_type`.

        `on_id` gets the call's number before it is sent. When the waiting task is cancelled, so is the
        call at the peer. Raises the typed error of the answer, PeerGone, BadAnswer, MessageTooLarge.
        """
        sent = {} if params is None else params
        answer = await self.exchange(lambda number: encode_request(number, method, sent), on_id=on_id)
        if answer.error is not None:
            raise error_from_wire(answer.error)
        try:
            return msgspec.json.decode(answer.raw, type=result_type)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadAnswer(method, str(error)) from error

    async def exchange(self, encode: Callable[[int], bytes], *, on_id: Callable[[int], None] | None = None) -> Response:
        """Send the body that `encode` makes of the call's number, and wait for the answer as it came.

        As `request`, for who reads and writes messages by other means. Raises PeerGone, MessageTooLarge.
        """
        self._require_open()
        future: asyncio.Future[Response | Exception] = self._loop.create_future()
        number = self._pending.open(future)
        try:
            body = encode(number)
            self._require_fits(body)
            if on_id is not None:
                on_id(number)
            self._put(body)
            answer = await future
        finally:
            if self._pending.drop(number) and future.cancelled():
                self.cancel(number)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, number: int) -> None:
        """Ask the peer to end our call `number`; its answer still comes and is still waited for."""
        self.notify(self._cancel_method, cancel_params(self._cancel_method, number))

    def notify(self, method: str, params: Any = None, *, latest: Hashable = None) -> None:
        """Send a notification. Never waits; to a peer that is gone it does nothing.

        `latest`: if a notification with this key still waits to be written, this one takes its place.
        Raises MessageTooLarge.
        """
        body = encode_notification(method, {} if params is None else params)
        self._require_fits(body)
        self._put(body, latest)

    async def drain(self) -> None:
        """Wait until everything put so far has been taken by the stream. Raises PeerGone."""
        self._require_open()
        future: asyncio.Future[Response | Exception] = self._loop.create_future()
        number = self._pending.open(future)
        self._sender.mark(lambda: self._pending.answer(Response(number)))
        try:
            outcome = await future
        finally:
            self._pending.drop(number)
        if isinstance(outcome, Exception):
            raise outcome

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self, handlers: TaskGroup) -> None:
        def take(body: bytes | Oversized) -> None:
            self._take(self._understand(body), handlers)

        with self._reading:
            ended = await read_bodies(self._stream, self._framer, take, lambda: self._reason is None)
            if ended is not None:
                self._conclude(ended)

    def _understand(self, body: bytes | Oversized) -> Message:
        if isinstance(body, Oversized):
            return salvage(body, MessageTooLarge(limit=self._framer.limit, size=body.size))
        return parse(body)

    def _take(self, message: Message, handlers: TaskGroup) -> None:
        if isinstance(message, Notification):
            # A request that came before must have begun: a cancel right behind it would be lost.
            if self._ahead:
                self._ahead += 1
                self._loop.call_soon(self._notified_later, message)
            else:
                self._notified(message)
        elif isinstance(message, Response):
            self._pending.answer(message)
        elif isinstance(message, Malformed):
            self._put(encode_error(message.id, message.error))
        elif message.id in self._running:
            reason = f"id {message.id!r} is in use by a request that still runs"
            self._put(encode_error(None, InvalidRequest(reason=reason)))
        else:
            call = Call(self, message)
            self._running[message.id] = call
            self._ahead += 1
            handlers.start_soon(self._serve, call, name=message.method)

    def _notified_later(self, message: Notification) -> None:
        self._ahead -= 1
        self._notified(message)

    def _notified(self, message: Notification) -> None:
        try:
            if message.method == self._cancel_method:
                self._cancel_call(message)
            else:
                self._on_notification(message)
        except ModeldError:
            pass  # JSON-RPC: a notification has no answer, not even a bad one
        except Exception as error:  # a defect of one handler must not end the connection
            self._on_defect(message.method, error)

    def _cancel_call(self, message: Notification) -> None:
        number = message.params(CancelParams).number
        if isinstance(number, (int, str)) or number is None:
            call = self._running.get(number)
            if call is not None:
                call.cancel()

    # --- answering -------------------------------------------------------------------------------

    async def _serve(self, call: Call) -> None:
        self._ahead -= 1
        body: bytes | None = None
        with anyio.CancelScope() as scope:
            call.enter(scope)
            body = await self._answer(call)
        self._running.pop(call.id, None)
        if body is None:
            body = encode_error(call.id, RequestCancelled())
        if len(body) > self._framer.limit:
            body = encode_error(call.id, MessageTooLarge(limit=self._framer.limit, size=len(body)))
        self._put(body)
        if self._reason is None:
            self._sender.mark(call.answered)

    async def _answer(self, call: Call) -> bytes:
        try:
            return encode_result(call.id, await self._on_request(call))
        except ModeldError as error:
            return encode_error(call.id, error)
        except Exception as error:  # a defect of one handler must not end the connection
            single = sole(error)
            if isinstance(single, ModeldError):
                return encode_error(call.id, single)
            self._on_defect(call.method, error)
            return encode_error(call.id, InternalFault(type=type(single).__name__))

    def _put(self, body: bytes, latest: Hashable = None) -> None:
        if self._reason in (None, "eof"):
            self._sender.put(body, latest)

    # --- ending ----------------------------------------------------------------------------------

    async def _end_handlers(self, handlers: TaskGroup) -> None:
        if self._reason == "eof":
            # What came just before the end still begins, and what needs no waiting is answered.
            for _ in range(3):
                await checkpoint()
        self._end(self._reason or "closed")
        handlers.cancel_scope.cancel()

    def _conclude(self, reason: ClosedReason) -> None:
        """The first reason stands."""
        self._reason = self._reason or reason
        self._sender.judge_no_more()

    def _end(self, reason: ClosedReason) -> None:
        gone = self._reason = self._reason or reason
        self._pending.fail(lambda: PeerGone(gone))

    def _require_open(self) -> None:
        if self._reason is not None:
            raise PeerGone(self._reason)

    def _require_fits(self, body: bytes) -> None:
        if len(body) > self._framer.limit:
            raise MessageTooLarge(limit=self._framer.limit, size=len(body))
