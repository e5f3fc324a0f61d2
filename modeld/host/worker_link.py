"""The worker process as the daemon holds it: its pipes as messages, its end exactly once, a kill that cannot miss."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import cast

from modeld.pipe.frames import BadFrame, from_worker_reader
from modeld.pipe.messages import FromWorker


class Child:
    """One child process, killed by a handle that no other process can come to own.

    `Popen.kill` polls first and so reaps behind the event loop's back, which loses the exit code.
    """

    def __init__(self, transport: asyncio.SubprocessTransport) -> None:
        self.pid: int = transport.get_pid()
        self._transport = transport
        self._handle = _open_handle(self.pid)

    def kill(self) -> None:
        """SIGKILL, or TerminateProcess; nothing when it has gone."""
        if self._transport.get_returncode() is not None:
            return
        try:
            if sys.platform == "win32":
                self._transport.kill()
            elif sys.platform == "linux" and self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Let go of the handle."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _open_handle(pid: int) -> int | None:
    """A descriptor that means this very process (Linux), or None."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # an old kernel, or gone already


class Link(asyncio.SubprocessProtocol):
    """Bytes to messages, and the end of the process. Whoever reads gets what came before the end first."""

    def __init__(self, receive: Callable[[FromWorker], None], gone: Callable[[str | None], None]) -> None:
        self._receive = receive
        self._gone = gone
        self._reader = from_worker_reader()
        self._transport: asyncio.SubprocessTransport | None = None
        self._child: Child | None = None
        self._problem: str | None = None
        self._exited = self._read_out = self._reported = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._child = Child(self._transport)

    @property
    def pid(self) -> int:
        """The process, also when it has gone."""
        return self._child.pid if self._child is not None else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._transport.get_returncode() if self._transport is not None else None

    def kill(self) -> None:
        """End the process now."""
        if self._child is not None:
            self._child.kill()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Bytes from the worker."""
        try:
            messages = self._reader.feed(data)
        except BadFrame:
            self._end("the worker wrote something that is not a message")
            return
        for message in messages:
            self._receive(message)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A worker without its pipe is of no use."""
        if fd == 1:
            self._read_out = True
            self._end(None)
            self._check()

    def process_exited(self) -> None:
        """The system has reaped the process."""
        self._exited = True
        asyncio.get_running_loop().call_later(0.2, self._finish)  # were the pipe held open by another process
        self._check()

    def _end(self, problem: str | None) -> None:
        self._problem = self._problem or problem
        self.kill()

    def _check(self) -> None:
        if self._exited and self._read_out:
            self._finish()

    def _finish(self) -> None:
        if not self._reported:
            self._reported = True
            if self._child is not None:
                self._child.close()
            if self._transport is not None:
                self._transport.close()
            self._gone(self._problem)
