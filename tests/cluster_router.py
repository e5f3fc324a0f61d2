"""A router in front of replicas, as a team has one: by the conversation's header, away from replicas that are gone.

Runs in a thread of its own. `delay_s` makes it slow; `stop` and `start` are a head that restarts on its port.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from typing import Any

HEADER = b"x-session-id:"


class Router:
    """Listens on `port`; `replicas` are ports of 127.0.0.1. `bodies` keeps what was posted to chat, in order."""

    def __init__(self, replicas: list[int]) -> None:
        self.replicas = replicas
        self.port = 0
        self.delay_s = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.served: dict[int, int] = dict.fromkeys(replicas, 0)
        self.moved = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Listen, the second time on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        """Cut every connection, listen no more."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port, limit=2**22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client or the replica broke off: the other end sees the same
        finally:
            self._open.discard(writer)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
        body = await reader.readexactly(lengths[0]) if lengths else b""
        if b"/chat/completions" in lines[0]:
            self.bodies.append(json.loads(body))
        await asyncio.sleep(self.delay_s)
        named = [line.split(b":", 1)[1].strip() for line in lines if line.lower().startswith(HEADER)]
        kept = [line for line in lines if not line.lower().startswith((b"connection:", b"host:"))]
        sent = b"\r\n".join([kept[0], b"Host: replica", b"Connection: close", *kept[1:]]) + body
        for port in self._order(named[0] if named else b""):
            try:
                upstream, back = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
            except OSError:
                self.moved += 1
                continue
            self.served[port] += 1
            back.write(sent)
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await self._pump(upstream, writer, gone)
            finally:
                gone.cancel()
                back.transport.abort()
            return
        writer.write(b"HTTP/1.1 503 X\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    def _order(self, name: bytes) -> list[int]:
        """The replica of a conversation first; the others follow when it is gone."""
        first = int.from_bytes(hashlib.sha256(name).digest()[:4]) % len(self.replicas)
        return [*self.replicas[first:], *self.replicas[:first]]

    @staticmethod
    async def _pump(upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        """Until the replica ends its answer, or the client hangs up (which the replica has to see)."""
        while True:
            piece = asyncio.ensure_future(upstream.read(65536))
            done, _ = await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
            if piece not in done:
                piece.cancel()
                return
            data = piece.result()
            if not data:
                return
            writer.write(data)
            await writer.drain()
