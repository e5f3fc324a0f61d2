"""The local endpoint on Unix: a socket that only this user can reach, checked from both ends."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from anyio.abc import ByteStream

from shared.endpoint.faults import EndpointBusy, EndpointError, EndpointForbidden, NobodyListens
from shared.endpoint.folder import RuntimeFolder
from shared.endpoint.handling import handle_connection
from shared.endpoint.transport import StreamProtocol, TransportStream

assert sys.platform != "win32"  # type checkers read the rest of this file for the other platforms alone

SCHEME = "unix:"
_BACKLOG = 128
#: Taken from the backlog in one go: each of them holds a descriptor before anybody can say no.
_AT_ONCE = 8
#: A socket file younger than this may belong to a process between bind and listen.
_SWEEP_AGE_SECONDS = 60.0
#: First and longest pause before a full backlog is tried again, in seconds.
_RETRY_FIRST = 0.005
_RETRY_LONGEST = 0.05

Handler = Callable[[ByteStream], Awaitable[None]]


class UnixListener:
    """One listening socket. It is there when the constructor returns: publish `address` after that.

    Raises FolderUnusable, or EndpointError when the socket cannot be bound.
    """

    def __init__(self, folder: RuntimeFolder, instance: str) -> None:
        self._folder = folder
        self._socket, self._path, self._inode = _bind(folder, instance.replace("-", "")[:8])
        self._server: asyncio.Server | None = None
        self._serving: Callable[[TransportStream], None] | None = None
        self._stopped = anyio.Event()

    @property
    def address(self) -> str:
        """`unix:/path/m-<8 hex>.sock`. Changes only in `rebind`."""
        return f"{SCHEME}{self._path}"

    def intact(self) -> bool:
        """Whether the path still leads to this socket (a logout empties runtime folders)."""
        return self._folder.intact() and _inode(self._path) == self._inode

    async def rebind(self) -> str:
        """Listen at a path that exists again, and give the address to publish. Connections live on."""
        self._folder.ensure()
        if self.intact():
            return self.address
        old, server = self._socket, self._server
        name = self._path.stem.removeprefix("m-")
        self._socket, self._path, self._inode = _bind(self._folder, name)
        if self._serving is not None:
            await self._start()
        if server is not None:
            server.close()
        old.close()
        return self.address

    async def sweep(self, now: float) -> None:
        """Remove sockets beside this one that nobody listens to any more."""
        await sweep(self._folder, now)

    async def serve(self, handler: Handler) -> None:
        """Run `handler` for each connection of this user, each in a task of its own, until `close`.

        A connection of another user is closed before anything is read. What a handler raises is
        reported to the loop's exception handler and ends its own connection only.
        """
        async with anyio.create_task_group() as connections:
            self._serving = lambda stream: self._accepted(stream, handler, connections)
            await self._start()
            try:
                await self._stopped.wait()
                connections.cancel_scope.cancel()
            finally:
                self.close()

    def close(self) -> None:
        """Stop listening, end what `serve` runs, and remove the socket if it is still ours. Idempotent."""
        self._stopped.set()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        if _inode(self._path) == self._inode:
            self._path.unlink(missing_ok=True)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        factory = lambda: StreamProtocol(self._serving)  # noqa: E731
        # asyncio's `backlog` is both: how many may wait, and how many it accepts before anything else is done
        self._server = await loop.create_unix_server(factory, sock=self._socket, backlog=_AT_ONCE)
        self._socket.listen(_BACKLOG)

    def _accepted(self, stream: TransportStream, handler: Handler, connections: anyio.abc.TaskGroup) -> None:
        pid, uid = peer_identity(stream.transport.get_extra_info("socket"))
        if uid != os.geteuid():
            stream.transport.abort()
            return
        stream.peer_pid = pid
        connections.start_soon(handle_connection, stream, handler)


async def connect_unix(address: str, timeout: float) -> TransportStream:
    """Connect within `timeout` seconds and check that the listener is this user.

    Raises NobodyListens, EndpointBusy, EndpointForbidden.
    """
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise _outcome(address, error) from error
    try:
        connection.setblocking(False)
        with anyio.move_on_after(timeout) as limit:
            await _dial(connection, address)
        if limit.cancelled_caught:
            raise EndpointBusy(address, f"no connection within {timeout:g} s")
        pid, uid = peer_identity(connection)
        if uid != os.geteuid():
            raise EndpointForbidden(address, f"it is served by uid {uid}")
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_unix_connection(StreamProtocol, sock=connection)
    except OSError as error:
        connection.close()
        raise _outcome(address, error) from error
    except BaseException:
        connection.close()
        raise
    stream = TransportStream(transport, protocol)
    stream.peer_pid = pid
    return stream


def peer_identity(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end; pid is 0 where the platform does not tell it."""
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return pid, uid
    return 0, _getpeereid(connection.fileno())


async def sweep(folder: RuntimeFolder, now: float) -> list[Path]:
    """Remove sockets in our folder that nobody listens to any more; gives what was removed.

    Only a refused connection is proof. `now` is wall-clock time.
    """
    removed: list[Path] = []
    for path in sorted(folder.path.glob("m-*.sock")) if folder.intact() else []:
        inode = _inode(path)
        if inode is None or now - path.lstat().st_mtime < _SWEEP_AGE_SECONDS:
            continue
        try:
            stream = await connect_unix(f"{SCHEME}{path}", 0.2)
        except NobodyListens as error:
            if error.refused and _inode(path) == inode:
                path.unlink(missing_ok=True)
                removed.append(path)
        except EndpointError:
            continue  # nothing proven: it stays
        else:
            await stream.aclose()
    return removed


async def _dial(connection: socket.socket, address: str) -> None:
    pause = _RETRY_FIRST
    while True:
        try:
            connection.connect(address.removeprefix(SCHEME))
        except (BlockingIOError, InterruptedError):
            await anyio.sleep(pause)  # the backlog is full: a busy listener, not a dead one
            pause = min(pause * 2, _RETRY_LONGEST)
        except OSError as error:
            raise _outcome(address, error) from error
        else:
            return


def _outcome(address: str, error: OSError) -> EndpointError:
    reason = error.strerror or str(error)
    if error.errno == errno.ECONNREFUSED:
        return NobodyListens(address, reason, refused=True)
    if error.errno == errno.ENOENT:
        return NobodyListens(address, reason, refused=False)
    if error.errno in (errno.EACCES, errno.EPERM):
        return EndpointForbidden(address, reason)
    return EndpointBusy(address, reason)


def _bind(folder: RuntimeFolder, name: str) -> tuple[socket.socket, Path, tuple[int, int]]:
    """A listening socket at `m-<name>.sock`, or at a random name where that one is taken."""
    folder.ensure()
    for candidate in (name, secrets.token_hex(4), secrets.token_hex(4)):
        path = folder.path / f"m-{candidate}.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # bind creates the file: it must never be open to others
        try:
            listener.bind(str(path))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise EndpointError(f"{SCHEME}{path}", error.strerror or str(error)) from error
        finally:
            os.umask(before)
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        inode = _inode(path)
        if inode is not None:
            return listener, path, inode
        listener.close()
    raise EndpointError(f"{SCHEME}{folder.path}", "no free name for a socket")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.lstat()
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino) if stat.S_ISSOCK(facts.st_mode) else None


def _getpeereid(descriptor: int) -> int:
    """The peer's uid on macOS and the BSDs."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = ctypes.c_uint(), ctypes.c_uint()
    if libc.getpeereid(descriptor, ctypes.byref(uid), ctypes.byref(gid)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return uid.value
