"""Calls in both directions: one that we answer, and the table of those that we wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shared.protocol.message import Request, RequestId, Response, decode_params

if TYPE_CHECKING:
    import asyncio

    import anyio

    from shared.protocol.peer import Peer

T = TypeVar("T")


class Call:
    """One request of the peer, while its handler runs.

    `cancelled` turns true when the peer cancels it. By default that cancels the handler's scope and
    the answer is `request_cancelled`; with `on_cancel` the handler goes on and answers by itself.
    """

    __slots__ = ("_after", "_on_cancel", "_request", "_scope", "cancelled", "peer")

    def __init__(self, peer: Peer, request: Request) -> None:
        self.peer = peer
        self.cancelled = False
        self._request = request
        self._scope: anyio.CancelScope | None = None
        self._on_cancel: list[Callable[[], None]] = []
        self._after: list[Callable[[], None]] = []

    @property
    def id(self) -> RequestId:
        """As the peer sent it."""
        return self._request.id

    @property
    def method(self) -> str:
        """The method's name."""
        return self._request.method

    @property
    def raw(self) -> msgspec.Raw:
        """The params as JSON."""
        return self._request.raw

    def params(self, kind: type[T]) -> T:
        """The params as `kind`. Raises InvalidParams, naming the value that is wrong."""
        return decode_params(self._request.raw, kind)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Take cancelling over: `callback` runs in its place (at once if it has happened already)."""
        self._on_cancel.append(callback)
        if self.cancelled:
            callback()

    def after_response(self, callback: Callable[[], None]) -> None:
        """Run `callback` once the answer, good or bad, has been written; never if the peer goes first."""
        self._after.append(callback)

    def enter(self, scope: anyio.CancelScope) -> None:
        """The handler starts inside `scope`."""
        self._scope = scope

    def cancel(self) -> None:
        """The peer wants this call to end. A second time does nothing."""
        if self.cancelled:
            return
        self.cancelled = True
        if not self._on_cancel:
            if self._scope is not None:
                self._scope.cancel()
            return
        for callback in list(self._on_cancel):
            callback()

    def answered(self) -> None:
        """The answer has been written."""
        for callback in self._after:
            callback()


class Pending:
    """Our own calls that have no answer yet, by id."""

    def __init__(self) -> None:
        self._next = 0
        self._futures: dict[RequestId, asyncio.Future[Response | Exception]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def open(self, future: asyncio.Future[Response | Exception]) -> int:
        """Give the call a number of its own on this connection."""
        self._next += 1
        self._futures[self._next] = future
        return self._next

    def drop(self, number: int) -> bool:
        """Forget a call; true if it was still waiting. A later answer to it is nothing."""
        return self._futures.pop(number, None) is not None

    def answer(self, response: Response) -> None:
        """Hand an answer to the call it belongs to; an answer to nothing is dropped."""
        future = self._futures.pop(response.id, None)
        if future is not None and not future.done():
            future.set_result(response)

    def fail(self, make: Callable[[], Exception]) -> None:
        """End every waiting call with an exception of its own."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_result(make())


class CancelParams(msgspec.Struct):
    """`$/cancel_request`: ACP says `requestId`, LSP says `id`; either is understood."""

    request_id: Any = msgspec.field(name="requestId", default=msgspec.UNSET)
    id: Any = msgspec.UNSET

    @property
    def number(self) -> Any:
        """The id of the call that is to end."""
        return self.id if self.request_id is msgspec.UNSET else self.request_id


def cancel_params(method: str, number: int) -> dict[str, int]:
    """Params of the cancel notification `method`: LSP's own spelling keeps LSP's own field."""
    return {"id": number} if method == "$/cancelRequest" else {"requestId": number}
