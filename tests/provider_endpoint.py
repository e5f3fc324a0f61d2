"""A listening endpoint whose routes are written by the test, and which keeps every request that came."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from served import Served

STREAM = "text/event-stream"


class Asked(NamedTuple):
    """One request; `headers` by lower-case name."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Reply(NamedTuple):
    """One answer: a text as it is, anything else as JSON."""

    status: int = 200
    body: Any = b""
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "application/json"


Answer = Reply | Callable[[Asked], Reply]


def said(text: str = "hello", finish: str = "stop", **usage: Any) -> Reply:
    """A streamed answer."""
    chunks: list[Any] = [{"choices": [{"delta": {"content": text}, "finish_reason": finish}]}]
    chunks += [{"choices": [], "usage": usage}] if usage else []
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return Reply(body="".join([*lines, "data: [DONE]\n\n"]), kind=STREAM)


def refused(status: int, message: str, **headers: str) -> Reply:
    """An error in the usual shape."""
    return Reply(status, {"error": {"message": message}}, tuple((k.replace("_", "-"), v) for k, v in headers.items()))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that breaks off is expected here."""


class Endpoint(Served):
    """Serves in threads until the block ends. What has no route is answered with 404."""

    def __init__(self, **models: Any) -> None:
        listed = [{"id": name, **(facts or {})} for name, facts in (models or {"big": {"max_model_len": 4096}}).items()]
        self.routes: dict[str, Answer | list[Answer]] = {
            "GET /v1/models": Reply(body={"data": listed}),
            "POST /v1/chat/completions": said(),
        }
        self.asked: list[Asked] = []
        self.connections = 0
        self._scheme = "http"
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                endpoint.connections += 1
                super().setup()

            def do_GET(self) -> None:
                endpoint._answer(self)

            def do_POST(self) -> None:
                endpoint._answer(self)

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        super().__init__(_Server(("127.0.0.1", 0), Handler))
        self._server.daemon_threads = True
        self._server.block_on_close = False

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/v1"

    def secure(self, context: ssl.SSLContext) -> None:
        """From now on it speaks https alone. The handshake is made by the thread of the connection."""
        self._scheme = "https"
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def bodies(self, path: str = "/v1/chat/completions") -> list[Any]:
        """What was posted there, in order."""
        return [one.body for one in self.asked if one.path.partition("?")[0] == path]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(handler.command, handler.path, headers, body)
        self.asked.append(asked)
        route = self.routes.get(f"{asked.method} {asked.path.partition('?')[0]}", Reply(404, {"error": "no route"}))
        if isinstance(route, list):
            route = route.pop(0) if len(route) > 1 else route[0]
        reply = route if isinstance(route, Reply) else route(asked)
        raw = reply.body if isinstance(reply.body, (str, bytes)) else json.dumps(reply.body)
        sent = raw.encode() if isinstance(raw, str) else raw
        handler.send_response(reply.status)
        handler.send_header("Content-Type", reply.kind)
        handler.send_header("Content-Length", str(len(sent)))
        for name, value in reply.headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(sent)
