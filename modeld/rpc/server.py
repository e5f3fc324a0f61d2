"""Connections of clients: handshake, fence, dispatch to one file a method, status pushes, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from modeld.rpc import fence
from modeld.rpc.admission import admission
from modeld.slot.caller import Client
from shared.diagnosis.exhausted import exhausted
from shared.errors import ResourcesExhausted, StaleFence, Unauthenticated
from shared.protocol import api
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import LineFramer
from shared.protocol.peer import Peer
from shared.system.descriptors import most_descriptors
from shared.text.shown import NAME_MOST, one_line

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from modeld.rpc.serving import Serving
    from shared.protocol.message import Notification
    from shared.protocol.requests import Call

Handler = Callable[["Serving", "Connection", "Call"], Awaitable[Any]]


class Connection:
    """One client. `sessions` are the handles it opened; `client` is None before its hello."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.client: Client | None = None
        self.info: api.ClientInfo | None = None
        self.protocol = 0
        self.watching = False
        self.sessions: set[str] = set()
        self.peer: Peer | None = None

    @property
    def caller(self) -> Client:
        """The greeted client. Raises Unauthenticated before its hello."""
        if self.client is None:
            raise Unauthenticated("say hello first")
        return self.client

    @property
    def is_editor(self) -> bool:
        """Whether it may be somebody's editor."""
        return self.info is not None and self.info.name != api.COMMAND_LINE


class Server:
    """All connections of this instance."""

    def __init__(self, daemon: Serving) -> None:
        self._daemon = daemon
        self._connections: dict[int, Connection] = {}
        self._next = 0
        self._handlers: dict[str, Handler] = {}
        self._push: asyncio.TimerHandle | None = None
        self._pushed_at = -1e9
        self._left = anyio.Event()
        self._answered = anyio.Event()
        self._admission = admission(most_descriptors(), daemon.settings.connection_limit)

    # --- counts --------------------------------------------------------------------------------

    @property
    def editors(self) -> int:
        """Greeted connections that are no commands of a moment: one that asks for the status is not a part of it."""
        return sum(1 for connection in self._connections.values() if connection.is_editor)

    def has(self, number: int) -> bool:
        """Whether that connection is open."""
        return number in self._connections

    async def all_gone(self) -> None:
        """Until no connection is left."""
        while self._connections:
            await self._left.wait()

    async def answered(self) -> None:
        """Until nobody waits for an answer."""
        while any(one.peer is not None and one.peer.running for one in self._connections.values()):
            await self._answered.wait()

    def _note_answered(self) -> None:
        answered, self._answered = self._answered, anyio.Event()
        answered.set()

    @property
    def sessions(self) -> int:
        """Open handles."""
        return sum(len(connection.sessions) for connection in self._connections.values())

    # --- one connection ------------------------------------------------------------------------

    async def serve(self, stream: ByteStream) -> None:
        """Serve one client until it goes; then nothing of it is left in the slot."""
        self._next += 1
        connection = Connection(self._next)

        async def on_request(call: Call) -> Any:
            try:
                return await self._answer(connection, call)
            except (OSError, RuntimeError) as error:
                full = exhausted(error)
                if full is None:
                    raise
                raise full from error
            finally:  # once the answer has been put
                asyncio.get_running_loop().call_soon(self._note_answered)

        peer = connection.peer = Peer(
            stream,
            LineFramer(self._daemon.settings.message_limit),
            on_request=on_request,
            on_notification=_ignore,
            settings=self._daemon.settings,
            on_defect=self._defect,
        )
        self._connections[connection.number] = connection
        self._make_room()
        late = asyncio.get_running_loop().call_later(self._daemon.settings.hello_wait, _late, connection)
        try:
            await peer.run()
        finally:
            late.cancel()
            del self._connections[connection.number]
            left, self._left = self._left, anyio.Event()
            left.set()
            if peer.closed_reason == "client_stalled":
                self._daemon.log(f"{connection.info.name if connection.info else 'a client'} stopped reading")
            self._daemon.slot.scheduler.drop_client(connection.number)
            self.changed()

    def _make_room(self) -> None:
        """Whoever has said nothing for the longest gives way to the one that has just come."""
        silent = [one for one in self._connections.values() if one.client is None]
        for one in silent[: max(len(silent) - self._admission.silent, 0)]:
            if one.peer is not None:
                one.peer.refuse(ResourcesExhausted(resource="connections", limit=self._admission.silent))

    def close(self) -> None:
        """End every connection; what was answered is still written."""
        for connection in list(self._connections.values()):
            if connection.peer is not None:
                connection.peer.close()

    async def _answer(self, connection: Connection, call: Call) -> Any:
        method = call.method
        if method == "hello":
            return self._hello(connection, call)
        if connection.client is None:
            call.after_response(call.peer.close)
            raise Unauthenticated("say hello first")
        if method not in api.METHODS:
            raise MethodNotFound(method=method)
        fence.check_method(method, connection.protocol)
        try:
            fence.check_fence(call.params(api.Fenced).fence, self._daemon.instance)
        except StaleFence:
            self._daemon.log(f"{method} of {connection.client.name} was meant for another instance: refused")
            raise
        return await self._handler(method)(self._daemon, connection, call)

    def _hello(self, connection: Connection, call: Call) -> api.HelloResult:
        params = call.params(api.HelloParams)
        try:
            fence.check_token(params.token, self._daemon.token)
        except Unauthenticated:
            call.after_response(call.peer.close)
            raise
        others = sum(one.client is not None for one in self._connections.values() if one is not connection)
        if not self._admission.takes(others, command=params.client.name == api.COMMAND_LINE):
            call.after_response(call.peer.close)
            raise ResourcesExhausted(resource="connections", limit=self._admission.greeted)
        # what others get to see and the log says: one line in which nothing acts, whatever the client calls itself
        name = one_line(params.client.name, NAME_MOST) or "a client"
        connection.info = msgspec.structs.replace(params.client, name=name)
        connection.protocol = params.protocol
        connection.client = Client(connection.number, name)
        self.changed()
        return api.HelloResult(
            protocol=fence.spoken(params.protocol),
            instance=self._daemon.instance,
            role=self._daemon.role,
            backend=self._daemon.backend,
            version=self._daemon.version,
            ending=self._daemon.ends_for,
            capabilities={"methods": sorted(api.METHODS)},
        )

    def _handler(self, method: str) -> Handler:
        found = self._handlers.get(method)
        if found is None:
            module = import_module("modeld.rpc.methods." + method.replace("/", "_"))
            found = self._handlers[method] = module.handle
        return found

    def _defect(self, method: str, error: BaseException) -> None:
        from shared.diagnosis.defect import where

        self._daemon.log(f"defect in {method}: {type(error).__name__} at {where(error)}")

    # --- status pushes -------------------------------------------------------------------------

    def changed(self) -> None:
        """Something that people see has changed: push it soon, and not more often than the interval."""
        if self._push is not None or not any(connection.watching for connection in self._connections.values()):
            return
        loop = asyncio.get_running_loop()
        wait = max(self._pushed_at + self._daemon.settings.status_interval - loop.time(), 0.0)
        self._push = loop.call_later(wait, self._push_now)

    def _push_now(self) -> None:
        self._push = None
        self._pushed_at = asyncio.get_running_loop().time()
        status = msgspec.Raw(msgspec.json.encode(self._daemon.status()))
        for connection in self._connections.values():
            if connection.watching and connection.peer is not None:
                connection.peer.notify("status/changed", status, latest="status")


def _late(connection: Connection) -> None:
    """Its time to say hello is over."""
    if connection.client is None and connection.peer is not None:
        connection.peer.refuse(Unauthenticated("say hello first"))


def _ignore(note: Notification) -> None:
    """No notification of a client means anything yet; unknown ones are ignored."""
