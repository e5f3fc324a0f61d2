"""A local HTTP server that serves files well or badly, as asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

Behaviour = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; `server.behaviours` says by path what to do."""

    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:
        """Log and dispatch."""
        self.server.requests.append((self.path, dict(self.headers.items())))
        behaviour = self.server.behaviours.get(self.path.partition("?")[0])
        if behaviour is None:
            self.fail(404)
        else:
            behaviour(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Silent."""

    def fail(self, status: int, **headers: str) -> None:
        """An error without a body."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def asked_from(self) -> int | None:
        """The start of the range that was asked for."""
        asked = self.headers.get("Range")
        return int(asked.removeprefix("bytes=").rstrip("-")) if asked else None

    def send_part(self, content: bytes, start: int, *, etag: str = '"v1"', stop: int | None = None) -> None:
        """206 or 200 with `content[start:]`, cut at `stop` while the full length is announced."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:stop])
        if stop is not None and stop < len(content):
            self.wfile.flush()
            self.close_connection = True


class FileServer(ThreadingHTTPServer):
    """`requests` holds (path, headers) of everything asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.behaviours: dict[str, Behaviour] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def serve(self, path: str, behaviour: Behaviour) -> str:
        """Answer `path` so; its address."""
        self.behaviours[path] = behaviour
        return self.url(path)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is expected here."""


Served = TypeVar("Served", bound=ThreadingHTTPServer)


@contextmanager
def served(server: Served) -> Iterator[Served]:
    """It answers in a thread of its own until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def file_server() -> AbstractContextManager[FileServer]:
    """A running server."""
    return served(FileServer())


def whole(content: bytes, etag: str = '"v1"') -> Behaviour:
    """Everything, with ranges as asked."""

    def behave(request: Request) -> None:
        start = request.asked_from() or 0
        if start and request.headers.get("If-Range") not in (None, etag):
            start = 0
        if start >= len(content) > 0:
            request.fail(416)
        else:
            request.send_part(content, start, etag=etag)

    return behave


def cut_at(content: bytes, stop: int, etag: str = '"v1"') -> Behaviour:
    """Ranges as asked, but the connection ends at byte `stop`."""
    return lambda request: request.send_part(content, request.asked_from() or 0, etag=etag, stop=stop)


def from_byte(content: bytes, start: int) -> Behaviour:
    """Always from `start`, whatever was asked."""
    return lambda request: request.send_part(content, start)


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Each once, the last for ever."""
    left = list(behaviours)

    def behave(request: Request) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(request)

    return behave


def status(code: int, **headers: str) -> Behaviour:
    """An error."""

    def behave(request: Request) -> None:
        request.fail(code, **headers)

    return behave
