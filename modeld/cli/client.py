"""Finding modeld and calling it from a command: one connection, one call at a time, no waiting for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import msgspec

from modeld.rpc.server import COMMAND_LINE
from shared.endpoint.endpoint import connect
from shared.endpoint.faults import EndpointBusy, EndpointForbidden, NobodyListens
from shared.errors import DaemonNotRunning, DaemonStale, DaemonUnreachable
from shared.lease.presence import read_token
from shared.lease.reader import LeaseView, PresenceView, Survey, survey
from shared.protocol import api
from shared.protocol.faults import error_from_wire
from shared.protocol.framing import LineFramer, Oversized

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.paths import DataRoot
    from shared.settings import Settings

T = TypeVar("T")
Target = LeaseView | PresenceView
#: Longest wait for the answer of a method that should answer at once. Seconds.
ANSWER_SECONDS = 10.0


def targets(found: Survey) -> list[Target]:
    """Living instances in the order to ask: the owner, then the oldest."""
    result: list[Target] = []
    if found.owner is not None and not found.owner.dead and found.owner.endpoint:
        result.append(found.owner)
    result += [view for view in found.living if not any(view.instance == one.instance for one in result)]
    return result


def absent(found: Survey) -> DaemonNotRunning | DaemonStale:
    """The typed error when no instance lives."""
    if found.owner is not None and found.owner.dead:
        return DaemonStale(hint="start it with `modeld start`", last_seen=round(found.owner.age_s, 1), retryable=False)
    return DaemonNotRunning(hint="start it with `modeld start`", last_seen=found.released_age_s, retryable=False)


class Connection:
    """A greeted connection. Use as `async with await Connection.open(...)`."""

    def __init__(self, stream: ByteStream, target: Target, settings: Settings) -> None:
        self._stream = stream
        self._framer = LineFramer(settings.message_limit)
        self._bodies: list[bytes] = []
        self.target = target
        self.hello = api.HelloResult(protocol=0, instance="", role="idle", backend="", version="")

    @classmethod
    async def open(cls, target: Target, settings: Settings) -> Connection:
        """Dial and greet. Raises DaemonUnreachable, DaemonNotRunning, Unauthenticated, ProtocolUnsupported."""
        try:
            token = await anyio.to_thread.run_sync(read_token, Path(target.token_file))
            stream = await connect(target.endpoint, timeout=settings.dial_timeout, expected_pid=target.pid)
        except NobodyListens as error:
            raise DaemonNotRunning(hint=error.reason, retryable=True) from error
        except (EndpointBusy, EndpointForbidden) as error:
            raise DaemonUnreachable(hint=error.reason, retryable=True) from error
        except OSError as error:
            raise DaemonUnreachable(hint=f"{target.token_file}: {error.strerror or error}", retryable=True) from error
        made = cls(stream, target, settings)
        try:
            params = api.HelloParams(protocol=api.PROTOCOL, token=token, client=api.ClientInfo(name=COMMAND_LINE))
            with anyio.fail_after(ANSWER_SECONDS):
                made.hello = await made._call("hello", params, api.HelloResult, None)
        except TimeoutError as error:
            await stream.aclose()
            raise DaemonUnreachable(hint="it accepts connections but does not answer", retryable=True) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
            raise
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()

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
        fenced = msgspec.structs.replace(params, fence=self.hello.instance)
        if limit is None:
            return await self._call(method, fenced, result_type, on_event)
        try:
            with anyio.fail_after(limit):
                return await self._call(method, fenced, result_type, on_event)
        except TimeoutError as error:
            raise DaemonUnreachable(hint=f"{method} was not answered", retryable=True) from error

    async def pushes(self) -> api.Status:
        """The next status push."""
        while True:
            message = await self._next()
            if message.get("method") == "status/changed":
                return msgspec.convert(message["params"], api.Status)

    async def _call(
        self, method: str, params: Any, result_type: type[T], on_event: Callable[[api.Event], None] | None
    ) -> T:
        from jsonrpcclient import Error, parse, request

        message = request(method, params=msgspec.to_builtins(params))
        await self._stream.send(self._framer.frame(json.dumps(message, ensure_ascii=False).encode("utf-8")))
        while True:
            received = await self._next()
            if received.get("method") == "session/event" and on_event is not None:
                on_event(msgspec.convert(received["params"], api.EventParams).event)
            if "method" in received or received.get("id") != message["id"]:
                continue
            answer = parse(received)
            if isinstance(answer, Error):
                raise error_from_wire(received["error"])
            return _understood(method, received["result"], result_type)

    async def _next(self) -> dict[str, Any]:
        while not self._bodies:
            try:
                data = await self._stream.receive(256 * 1024)
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as error:
                raise DaemonUnreachable(hint="it closed the connection", retryable=True) from error
            self._bodies += [body for body in self._framer.feed(data) if not isinstance(body, Oversized)]
        try:
            message: dict[str, Any] = json.loads(self._bodies.pop(0))
        except (ValueError, RecursionError) as error:
            raise DaemonUnreachable(hint="its answer cannot be read", retryable=True) from error
        return message


def _understood(method: str, result: Any, result_type: type[T]) -> T:
    try:
        return msgspec.convert(result, result_type)
    except msgspec.ValidationError as error:
        hint = f"its answer to {method} cannot be understood ({error}); `modeld restart` makes both one version"
        raise DaemonUnreachable(hint=hint, retryable=False) from error


async def reach(root: DataRoot, settings: Settings) -> Connection:
    """The owner, else the oldest instance that answers. Raises the typed daemon errors."""
    found = await anyio.to_thread.run_sync(survey, root)
    failure: Exception | None = None
    for target in targets(found):
        try:
            return await Connection.open(target, settings)
        except (DaemonUnreachable, DaemonNotRunning) as error:
            failure = failure or error
    raise failure or absent(found)
