"""An MCP server as a child of the bridge: its pipes as the streams that the SDK's session takes.

The SDK has such a transport too, but it gives a server four seconds to end and lets one outlive a killed bridge.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.process.child_process import ChildProcess
from shared.protocol.framing import LineFramer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import ByteReceiveStream, Process

#: A server that has not ended this long after its input was closed is ended: an editor that closes the bridge waits.
GRACE_S = 0.3
MESSAGE_LIMIT = 64 * 1024 * 1024
#: How much of what it writes to standard error is kept, to say why it failed. It goes into no log.
TAIL_BYTES = 64 * 1024


class StdioServer:
    """One running server. `said` is the last line it wrote to standard error."""

    def __init__(self, process: Process, child: ChildProcess, types: Any) -> None:
        self._process = process
        self._child = child
        self._types = types
        self._tail = bytearray()
        self.ended = anyio.Event()  # it says nothing more
        self._reading_end, self.reading = anyio.create_memory_object_stream[Any](0)
        self.writing, self._writing_end = anyio.create_memory_object_stream[Any](0)

    @property
    def said(self) -> str:
        """Empty when it wrote nothing."""
        tail = self._tail.decode("utf-8", "replace")
        if len(self._tail) == TAIL_BYTES:
            tail = tail.partition("\n")[2]  # half of a line may be half of a secret, which nobody knows as one
        lines = tail.strip().splitlines()
        return lines[-1].strip() if lines else ""

    async def read_output(self) -> None:
        """Lines of its standard output as messages; what is no message is given on as the error it is."""
        from mcp.shared.message import SessionMessage

        assert self._process.stdout is not None
        framer = LineFramer(MESSAGE_LIMIT)
        async with self._reading_end:
            async for data in _pieces(self._process.stdout):
                for line in framer.feed(data):
                    if not isinstance(line, bytes):
                        continue  # larger than any answer may be: its request times out
                    try:
                        message = self._types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError as error:
                        await self._reading_end.send(error)
                    else:
                        await self._reading_end.send(SessionMessage(message))
        self.ended.set()

    async def write_input(self) -> None:
        """What the session sends, to its standard input."""
        assert self._process.stdin is not None
        try:
            async for sent in self._writing_end:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.stdin.send(text.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._reading_end.aclose()  # it has gone; the session must not wait for answers

    async def read_errors(self) -> None:
        """Keep the end of what it writes to standard error."""
        assert self._process.stderr is not None
        async for data in _pieces(self._process.stderr):
            self._tail += data
            del self._tail[:-TAIL_BYTES]

    def close(self) -> None:
        """Free the streams."""
        for stream in (self.reading, self.writing, self._reading_end, self._writing_end):
            stream.close()

    async def end(self) -> None:
        """Close its input, and leave it a moment. The child does the rest."""
        self.reading.close()
        self.writing.close()
        assert self._process.stdin is not None
        try:
            await self._process.stdin.aclose()
        except (anyio.BrokenResourceError, OSError):
            return
        with anyio.move_on_after(GRACE_S):
            await self._child.wait()


async def _pieces(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    try:
        while True:
            yield await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


@asynccontextmanager
async def stdio_server(
    program: str, arguments: Sequence[str], environ: Mapping[str, str], cwd: str, types: Any
) -> AsyncIterator[StdioServer]:
    """A running server, ended with everything it started at the end of the block. Raises OSError."""
    child = ChildProcess()
    process = await child.spawn(
        program, arguments, cwd=cwd, environ=environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    server = StdioServer(process, child, types)
    try:
        async with anyio.create_task_group() as group:
            for work in (server.read_output, server.write_input, server.read_errors):
                group.start_soon(work)
            try:
                yield server
            finally:
                with anyio.CancelScope(shield=True):
                    await server.end()
                child.end()
                group.cancel_scope.cancel()
    finally:
        child.end()
        with anyio.CancelScope(shield=True):
            await process.aclose()
        server.close()
