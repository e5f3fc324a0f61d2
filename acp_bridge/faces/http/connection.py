"""One connection of a client, as uvicorn and h11 read it, with limits on those that only wait."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from acp_bridge.faces.http.exchange import ABORT

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

#: A request's head comes in one piece from a program on this machine.
HEAD_S = 10.0
#: Between two requests on one connection. SDKs give theirs up sooner by themselves, so that no request meets a closing.
KEEP_ALIVE_S = 75.0
#: More than all programs of a person open. Past it the connection that waited longest without a request is closed.
MOST_CONNECTIONS = 256


class Connection(H11Protocol):
    """Closes what waits for too long, or belongs to another user."""

    def __init__(self, config: Config, server_state: ServerState, waiting: dict[Connection, None]) -> None:
        super().__init__(config, server_state, {ABORT: self.give_up})
        self._waiting = waiting  # those without a request, the longest first
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False  # a part of a head has come

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        if not _is_own(transport.get_extra_info("socket")):
            transport.abort()
            return
        if len(self.connections) > MOST_CONNECTIONS:
            if not self._waiting:
                transport.abort()
                return
            next(iter(self._waiting)).give_up()
        self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a request; of a head that is not whole the time goes on."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if not self._begun:
                self._begun = True
                self._wait(HEAD_S)
        elif self._answers():
            self._rest()

    def on_response_complete(self) -> None:
        """The answer is out: the next request may come."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or self._answers():
            return  # the next request has come behind the last already
        self._begun = False
        # one that was refused before its body had come may not send that for ever
        self._wait(KEEP_ALIVE_S if self.conn.their_state is h11.IDLE else HEAD_S)

    def _answers(self) -> bool:
        """Whether a request runs."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def give_up(self) -> None:
        """Close it: no request is lost."""
        self._rest()
        self.transport.abort()

    def _wait(self, seconds: float) -> None:
        self._rest()
        self._waiting[self] = None
        self._timer = self.loop.call_later(seconds, self.give_up)

    def _rest(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_own(connection: Any) -> bool:
    """On a Unix socket the kernel tells whose process is at the other end; on a port it is the key that tells."""
    if sys.platform == "win32":
        return True
    else:  # noqa: RET505  type checkers read the import for the other platforms alone
        import socket

        from shared.endpoint.unix import peer_identity

        if connection is None or connection.family != socket.AF_UNIX:
            return True
        try:
            return peer_identity(connection)[1] == os.geteuid()
        except OSError:
            return False
