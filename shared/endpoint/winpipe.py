r"""The local endpoint on Windows: a named pipe that only this user can open, checked from both ends.

The rules stand here and the platform's calls in `winapi.py`, behind `Pipes`. Defences, each for
itself enough: a random name published in a private record, the first-instance flag, a DACL for this
user on every instance, no remote clients, and the pid and user of the process at the other end.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio
from anyio.abc import ByteStream, TaskGroup

from shared.endpoint.faults import EndpointBusy, EndpointError, EndpointForbidden, NobodyListens
from shared.endpoint.handling import handle_connection
from shared.endpoint.transport import StreamProtocol, TransportStream

SCHEME = "pipe:"
_PREFIX = "\\\\.\\pipe\\modeld-"

ERROR_FILE_NOT_FOUND = 2
ERROR_ACCESS_DENIED = 5
ERROR_PIPE_BUSY = 231

#: First and longest pause before a pipe whose instances are all taken is tried again, in seconds.
_RETRY_FIRST = 0.002
_RETRY_LONGEST = 0.05

Handler = Callable[[ByteStream], Awaitable[None]]


class PipeCallFailed(OSError):
    """A call of the platform failed; `code` is Win32's error number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Pipes(Protocol):
    """What the rules need of the platform. A handle is whatever `create` and `open` give.

    Every call may raise PipeCallFailed.
    """

    def create(self, name: str, *, first: bool) -> Any:
        """One more instance of the pipe `name`; as the `first`, only if there is none yet."""
        ...

    async def accept(self, handle: Any) -> None:
        """Wait until a client is connected to this instance."""
        ...

    def open(self, name: str) -> Any:
        """The client's end, which the server can identify and not impersonate."""
        ...

    def transport(self, handle: Any, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
        """Hand a connected pipe to the event loop."""
        ...

    def server_pid(self, handle: Any) -> int:
        """Of a client's end."""
        ...

    def client_pid(self, handle: Any) -> int:
        """Of a server's end."""
        ...

    def user_of(self, pid: int) -> str | None:
        """The user a process runs as (a SID), or None where this process may not look."""
        ...

    def own_user(self) -> str:
        """The user of this process."""
        ...

    def close(self, handle: Any) -> None:
        """Close a handle that no transport owns."""
        ...


class PipeListener:
    """One pipe. It can be dialled when the constructor returns: publish `address` after that.

    Raises EndpointError when the pipe cannot be made (somebody else has one of this name).
    """

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._name = _PREFIX + secrets.token_hex(16)
        self._user = pipes.own_user()
        self._closed = False
        self._stopped = anyio.Event()
        try:
            self._spare: Any = pipes.create(self._name, first=True)
        except PipeCallFailed as error:
            raise EndpointError(self.address, str(error)) from error

    @property
    def address(self) -> str:
        r"""`pipe:\\.\pipe\modeld-<32 hex>`."""
        return SCHEME + self._name

    def intact(self) -> bool:
        """A pipe lives as long as its server: nobody can remove its name."""
        return not self._closed

    async def rebind(self) -> str:
        """The address: a pipe has no path to repair."""
        return self.address

    async def sweep(self, now: float) -> None:
        """A pipe goes with its process: nothing is left behind."""

    async def serve(self, handler: Handler) -> None:
        """Run `handler` for each connection of this user, each in a task of its own, until `close`.

        What a handler raises is reported to the loop's exception handler and ends its own connection only.
        """
        async with anyio.create_task_group() as connections:
            connections.start_soon(self._accept, handler, connections)
            try:
                await self._stopped.wait()
                connections.cancel_scope.cancel()
            finally:
                self.close()

    def close(self) -> None:
        """Stop listening and end what `serve` runs. Idempotent."""
        self._stopped.set()
        if not self._closed:
            self._closed = True
            self._pipes.close(self._spare)

    async def _accept(self, handler: Handler, connections: TaskGroup) -> None:
        while not self._closed:
            waiting = self._spare
            # One instance more than is being waited for, so that the name never vanishes between two clients.
            self._spare = self._pipes.create(self._name, first=False)
            try:
                await self._pipes.accept(waiting)
            except PipeCallFailed:
                self._pipes.close(waiting)  # the client was gone before we were
                continue
            except BaseException:
                self._pipes.close(waiting)
                raise
            stream = self._admit(waiting)
            if stream is not None:
                connections.start_soon(handle_connection, stream, handler)

    def _admit(self, handle: Any) -> TransportStream | None:
        try:
            pid = self._pipes.client_pid(handle)
            if self._pipes.user_of(pid) not in (None, self._user):  # None: the DACL has let it in
                self._pipes.close(handle)
                return None
        except PipeCallFailed:
            self._pipes.close(handle)
            return None
        return _stream(self._pipes, handle, pid)


async def connect_pipe(pipes: Pipes, address: str, *, timeout: float, expected_pid: int | None) -> TransportStream:
    """Connect within `timeout` seconds and check who listens before a byte is sent.

    The server's pid must be `expected_pid` where that is known, and its user ours.
    Raises NobodyListens, EndpointBusy, EndpointForbidden.
    """
    with anyio.move_on_after(timeout):
        handle = await _open(pipes, address)
        try:
            pid = pipes.server_pid(handle)
            _require_ours(pipes, address, pid, expected_pid)
        except PipeCallFailed as error:
            pipes.close(handle)
            raise EndpointForbidden(address, f"its server cannot be identified: {error}") from error
        except EndpointForbidden:
            pipes.close(handle)
            raise
        return _stream(pipes, handle, pid)
    raise EndpointBusy(address, f"no connection within {timeout:g} s")


async def _open(pipes: Pipes, address: str) -> Any:
    pause = _RETRY_FIRST
    while True:
        try:
            return pipes.open(address.removeprefix(SCHEME))
        except PipeCallFailed as error:
            if error.code == ERROR_FILE_NOT_FOUND:
                raise NobodyListens(address, str(error), refused=False) from error
            if error.code == ERROR_ACCESS_DENIED:
                raise EndpointForbidden(address, str(error)) from error
            if error.code != ERROR_PIPE_BUSY:
                raise EndpointBusy(address, str(error)) from error
        await anyio.sleep(pause)
        pause = min(pause * 2, _RETRY_LONGEST)


def _require_ours(pipes: Pipes, address: str, pid: int, expected_pid: int | None) -> None:
    if expected_pid is not None and pid != expected_pid:
        raise EndpointForbidden(address, f"process {pid} serves it, not process {expected_pid} of the record")
    user = pipes.user_of(pid)
    if user is None and expected_pid is None:
        raise EndpointForbidden(address, f"the user of process {pid}, which serves it, cannot be seen")
    if user not in (None, pipes.own_user()):
        raise EndpointForbidden(address, f"it is served by user {user}")


def _stream(pipes: Pipes, handle: Any, pid: int) -> TransportStream:
    protocol = StreamProtocol()
    stream = TransportStream(pipes.transport(handle, protocol), protocol)
    stream.peer_pid = pid
    return stream
