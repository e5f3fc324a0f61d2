"""Listen and connect, whatever the platform: the socket on Unix, the named pipe on Windows."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from shared.endpoint.faults import EndpointBusy

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.endpoint.folder import RuntimeFolder


class Listener(Protocol):
    """See UnixListener, which says what each of these promises."""

    @property
    def address(self) -> str:
        r"""`unix:/path` or `pipe:\\.\pipe\name`."""
        ...

    def intact(self) -> bool:
        """Whether the address still leads to us."""
        ...

    async def rebind(self) -> str:
        """Listen again; gives the address to publish."""
        ...

    async def serve(self, handler: Callable[[ByteStream], Awaitable[None]]) -> None:
        """Run `handler` for each connection of this user until `close`."""
        ...

    async def sweep(self, now: float) -> None:
        """Remove what instances that were killed left beside it; `now` is wall-clock time."""
        ...

    def close(self) -> None:
        """Stop listening and remove only what is ours."""
        ...


if sys.platform == "win32":

    def listen(folder: RuntimeFolder, instance: str) -> Listener:
        """A listener for one instance; it listens when this returns. Raises EndpointError."""
        from shared.endpoint.winapi import WindowsPipes
        from shared.endpoint.winpipe import PipeListener

        return PipeListener(WindowsPipes())

    async def connect(address: str, *, timeout: float, expected_pid: int | None = None) -> ByteStream:
        """Connect to a published address within `timeout` seconds.

        `expected_pid` is the server's pid by its record, since a pipe's name can be squatted.
        Raises NobodyListens, EndpointBusy, EndpointForbidden.
        """
        from shared.endpoint.winapi import WindowsPipes
        from shared.endpoint.winpipe import SCHEME, connect_pipe

        if not address.startswith(SCHEME):
            raise EndpointBusy(address, "this platform cannot dial such an address")
        return await connect_pipe(WindowsPipes(), address, timeout=timeout, expected_pid=expected_pid)

else:

    def listen(folder: RuntimeFolder, instance: str) -> Listener:
        """A listener for one instance; it listens when this returns. Raises EndpointError."""
        from shared.endpoint.unix import UnixListener

        return UnixListener(folder, instance)

    async def connect(address: str, *, timeout: float, expected_pid: int | None = None) -> ByteStream:
        """Connect to a published address within `timeout` seconds.

        `expected_pid` decides nothing here: the folder and the uid are the proof, and pids differ
        between namespaces. Raises NobodyListens, EndpointBusy, EndpointForbidden.
        """
        from shared.endpoint.unix import SCHEME, connect_unix

        if not address.startswith(SCHEME):
            raise EndpointBusy(address, "this platform cannot dial such an address")
        return await connect_unix(address, timeout)
