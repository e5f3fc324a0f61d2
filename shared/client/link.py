"""One connection to one modeld instance: handshake, fenced calls, events routed to the call they belong to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec

from shared.client.errors import silent, token_lost, unreached
from shared.client.locate import Target
from shared.endpoint.endpoint import connect
from shared.endpoint.faults import EndpointError
from shared.errors import DaemonRestarting, DaemonUnreachable, ProtocolUnsupported
from shared.lease import presence
from shared.lease.process import identity
from shared.protocol import api
from shared.protocol.faults import BadAnswer, MethodNotFound, PeerGone
from shared.protocol.framing import LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.settings import Settings

R = TypeVar("R")
OnEvent = Callable[[api.Event], None]
#: How a call is made: on which peer, the method, its params, the type of its result, and who gets its number.
Ask = Callable[[Peer, str, Any, Any, Callable[[int], None] | None], Awaitable[Any]]


async def dial(target: Target, limit: float) -> ByteStream:
    """A connection within `limit` seconds. Raises DaemonRestarting, DaemonUnreachable."""
    try:
        return await connect(target.address, timeout=limit, expected_pid=target.pid)
    except EndpointError as error:
        raise unreached(error) from error


def read_token(target: Target) -> str:
    """The secret of the handshake; blocks. Raises DaemonRestarting, DaemonUnreachable."""
    try:
        return presence.read_token(target.token_file)
    except OSError as error:
        raise token_lost(error) from error


async def ask(peer: Peer, method: str, params: Any, result: Any, on_id: Callable[[int], None] | None) -> Any:
    """A call as the peer itself makes it."""
    return await peer.request(method, params, result_type=result, on_id=on_id)


class Link:
    """A live connection. `hello` is what the instance said of itself; `waiting` counts the calls under way.

    `peer.run` has to be run beside it.
    """

    def __init__(
        self,
        stream: ByteStream,
        target: Target,
        settings: Settings,
        on_status: Callable[[api.Status], None],
        asked: Ask = ask,
    ) -> None:
        self.target = target
        self.hello: api.HelloResult | None = None
        self.waiting = 0
        self._settings = settings
        self._on_status = on_status
        self._ask = asked
        self._events: dict[int | str | None, OnEvent] = {}
        self.peer = Peer(
            stream,
            LineFramer(settings.message_limit),
            on_request=self._refuse,
            on_notification=self._notified,
            settings=settings,
        )

    @property
    def instance(self) -> str:
        """The fence of every call on this connection."""
        return self.hello.instance if self.hello is not None else self.target.instance

    async def greet(self, token: str, client: api.ClientInfo, limit: float | None = None) -> api.HelloResult:
        """The handshake, bounded by `limit` seconds, with the very instance that the record names.

        Raises DaemonUnreachable when it does not answer or answers nonsense, DaemonRestarting when it is another.
        """
        params = api.HelloParams(protocol=api.PROTOCOL, token=token, client=client)
        try:
            with anyio.fail_after(self._settings.dial_timeout if limit is None else limit):
                hello: api.HelloResult = await self._ask(self.peer, "hello", params, api.HelloResult, None)
        except TimeoutError as error:
            raise silent(self.target.pid, stopped=identity.is_stopped(self.target.pid)) from error
        except (PeerGone, BadAnswer) as error:
            raise DaemonUnreachable(hint=str(error), retryable=True) from error
        self.hello = hello
        if self.target.instance and hello.instance != self.target.instance:
            # its address outlived its record: whoever answers now is found by a record of its own
            raise DaemonRestarting(hint="another instance answers at its address", retryable=True)
        return hello

    def require_protocol(self) -> None:
        """For what needs more than to greet, tell a status and stop. Raises ProtocolUnsupported."""
        hello = self.hello
        if hello is not None and not api.PROTOCOL_MIN <= hello.protocol <= api.PROTOCOL_MAX:
            raise ProtocolUnsupported(_apart(hello), min=api.PROTOCOL_MIN, max=api.PROTOCOL_MAX)

    async def call(
        self,
        method: str,
        params: api.Fenced,
        result_type: type[R],
        *,
        on_event: OnEvent | None = None,
        on_id: Callable[[int], None] | None = None,
    ) -> R:
        """A fenced call. Raises PeerGone when the connection ends first, and the typed errors of the answer."""
        sent = msgspec.structs.replace(params, fence=self.instance)
        number: list[int] = []

        def started(request: int) -> None:
            number.append(request)
            if on_event is not None:
                self._events[request] = on_event
            if on_id is not None:
                on_id(request)

        self.waiting += 1
        try:
            answer: R = await self._ask(self.peer, method, sent, result_type, started)
            return answer
        finally:
            self.waiting -= 1
            for request in number:
                self._events.pop(request, None)

    def cancel(self, request: int) -> None:
        """Ask the instance to end a call; its answer still comes."""
        self.peer.cancel(request)

    async def _refuse(self, call: Call) -> Any:
        raise MethodNotFound(method=call.method)

    def _notified(self, notification: Notification) -> None:
        if notification.method == "session/event":
            params = notification.params(api.EventParams)
            handler = self._events.get(params.request)
            if handler is not None:
                handler(params.event)
        elif notification.method == "status/changed":
            self._on_status(notification.params(api.Status))


def _apart(hello: api.HelloResult) -> str:
    """Which side is behind, and what to do about it."""
    ours = f"{api.PROTOCOL_MIN} to {api.PROTOCOL_MAX}" if api.PROTOCOL_MIN < api.PROTOCOL_MAX else api.PROTOCOL_MAX
    way = (
        "upgrade modeld and run `modeld restart`"
        if hello.protocol < api.PROTOCOL_MIN
        else "upgrade the modeld package of this editor, then reload its window"
    )
    return f"modeld {hello.version} speaks protocol {hello.protocol}, this bridge {ours}: {way}"
