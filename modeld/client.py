"""A command's connection to modeld: one call at a time, no waiting for ever. Requests are jsonrpcclient's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import anyio.to_thread
import msgspec

from shared.client.errors import misunderstood, silent
from shared.client.link import Link, dial, read_token
from shared.client.locate import Target, detect, targets
from shared.errors import ConnectionRefused, DaemonError, DaemonNotRunning, DaemonUnreachable
from shared.lease.process import identity
from shared.lease.reader import Survey, survey
from shared.protocol import api
from shared.protocol.faults import BadAnswer, PeerGone, error_from_wire
from shared.text.words import START_MODELD

if TYPE_CHECKING:
    from shared.paths import DataRoot
    from shared.protocol.message import Response
    from shared.protocol.peer import Peer
    from shared.settings import Settings

T = TypeVar("T")
#: Longest wait for the answer of a method that should answer at once. Seconds.
ANSWER_SECONDS = 10.0


def absent(found: Survey) -> DaemonError:
    """The typed error when no instance lives. A command asks now and does not wait: a gap is an absence to it."""
    if found.owner is None and not found.problem:
        return DaemonNotRunning(hint=START_MODELD, last_seen=found.released_age_s, retryable=False)
    return detect(found, grace=0.0, noticed={}, installed=True).error()


class Connection:
    """A greeted connection. Use as `async with await Connection.open(...)`."""

    def __init__(self, link: Link, statuses: asyncio.Queue[api.Status | None]) -> None:
        self.target = link.target
        self.hello = api.HelloResult(protocol=0, instance="", role="idle", backend="", version="")
        self._link = link
        self._statuses = statuses
        self._running = asyncio.ensure_future(link.peer.run())
        self._running.add_done_callback(lambda _: statuses.put_nowait(None))

    @classmethod
    async def open(cls, target: Target, settings: Settings) -> Connection:
        """Dial and greet. Raises DaemonUnreachable, DaemonRestarting, Unauthenticated, ProtocolUnsupported."""
        if identity.is_stopped(target.pid):
            raise silent(target.pid, stopped=True)  # a greeting would only wait
        token = await anyio.to_thread.run_sync(read_token, target)
        stream = await dial(target, settings.dial_timeout)
        statuses: asyncio.Queue[api.Status | None] = asyncio.Queue()
        made = cls(Link(stream, target, settings, statuses.put_nowait, ask), statuses)
        try:
            made.hello = await made._link.greet(token, api.ClientInfo(name=api.COMMAND_LINE), ANSWER_SECONDS)
        except BaseException:
            await made._close()
            raise
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._link.peer.close()
        with anyio.CancelScope(shield=True):
            await self._running

    async def call(
        self,
        method: str,
        params: api.Fenced,
        result_type: type[T],
        on_event: Callable[[api.Event], None] | None = None,
        *,
        limit: float | None = ANSWER_SECONDS,
    ) -> T:
        """A fenced call. `limit` None: no bound. Raises the typed errors of the answer, DaemonUnreachable."""
        try:
            with anyio.fail_after(limit):
                return await self._link.call(method, params, result_type, on_event=on_event)
        except TimeoutError as error:
            raise DaemonUnreachable(hint=f"{method} was not answered", retryable=True) from error
        except PeerGone as error:
            raise _closed() from error
        except BadAnswer as error:
            raise misunderstood(error) from error

    async def pushes(self) -> api.Status:
        """The next status push."""
        status = await self._statuses.get()
        if status is None:
            raise _closed()
        return status


async def ask(peer: Peer, method: str, params: Any, result: Any, on_id: Callable[[int], None] | None) -> Any:
    """A call whose request and answer are written and read by jsonrpcclient. See `shared.client.link.Ask`."""
    from jsonrpcclient import Error, parse, request

    def encode(number: int) -> bytes:
        message = request(method, params=msgspec.to_builtins(params), id=number)
        return json.dumps(message, ensure_ascii=False).encode("utf-8")

    received = await peer.exchange(encode, on_id=on_id)
    try:
        answer = parse(_document(received))
        if isinstance(answer, Error):
            raise error_from_wire({"code": answer.code, "message": answer.message, "data": answer.data})
        return msgspec.convert(answer.result, result)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BadAnswer(method, str(error)) from error


def _document(answer: Response) -> dict[str, Any]:
    document: dict[str, Any] = {"jsonrpc": "2.0", "id": answer.id}
    if answer.error is None:
        return {**document, "result": msgspec.json.decode(answer.raw)}
    return {**document, "error": {"code": 0, "message": "", **answer.error}}


def _closed() -> DaemonUnreachable:
    return DaemonUnreachable(hint="it closed the connection", retryable=True)


async def reach(root: DataRoot, settings: Settings) -> Connection:
    """The owner, else the oldest instance that answers. Raises the typed daemon errors."""
    found = await anyio.to_thread.run_sync(survey, root)
    failure: DaemonError | ConnectionRefused | None = None
    for target in targets(found):
        try:
            return await Connection.open(target, settings)
        except (DaemonError, ConnectionRefused) as error:
            failure = failure or error
    raise failure or absent(found)
