"""An HTTP server that says what it was sent, in every place where a server can say something."""

from __future__ import annotations

import base64
import json
import re
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from file_server import served
from secret_search import echoes

#: Statuses that it refuses with.
STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503)
SCENARIOS = (
    *(f"json-{status}" for status in STATUSES), "plain-400", "plain-403", "plain-404", "plain-500", "html-400",
    "html-500", "redirect-301", "redirect-302", "redirect-307",
    "json-error-text", "context", "sse-error", "sse-error-text", "sse-object-error", "sse-text", "sse-thought",
    "sse-call", "sse-names", "sse-junk", "sse-finish", "html-200", "json-200", "bad-status-line", "bad-header",
    "bad-chunk", "bad-gzip", "cut", "hello",
)  # fmt: skip


class Echo(BaseHTTPRequestHandler):
    """One request; the model that is asked for says what happens."""

    protocol_version = "HTTP/1.1"
    server: HostileServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Silent."""

    def said(self) -> str:
        """Everything secret that came with this request, again."""
        sent = [self.headers.get(name, "") for name in ("Authorization", "Proxy-Authorization", "X-Api-Key", "Cookie")]
        secrets = [self.path.partition("?")[2].rpartition("=")[2]]
        for header in sent:
            kind, _, value = header.rpartition(" ")
            if kind == "Basic":
                value = base64.b64decode(value).decode().partition(":")[2]
            secrets.append(value)
        return " ".join(echoes(secret) for secret in secrets if secret)

    def do_GET(self) -> None:
        """A list with an echo in it, or a refusal."""
        self.server.seen.append((self.path, dict(self.headers.items())))
        if self.path.split("?")[0].endswith("/models"):
            self.reply(200, json.dumps({"data": [{"id": self.said(), "owned_by": self.said()}, {"id": "plain"}]}))
        else:
            self.reply(401, json.dumps({"error": {"message": self.said()}}))

    def do_DELETE(self) -> None:
        """The end of an MCP session."""
        self.reply(404, self.said())

    def do_POST(self) -> None:
        """A completion, by the name of its model."""
        self.server.seen.append((self.path, dict(self.headers.items())))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        scenario = str(body.get("model", "json-401"))
        kind, _, status = scenario.rpartition("-")
        if kind in ("json", "plain", "html", "redirect") and status.isdigit():
            self.refuse(kind, int(status))
        else:
            getattr(self, scenario.replace("-", "_"))(body)

    def refuse(self, kind: str, status: int) -> None:
        """A status with an echo in its body, its headers and its words."""
        said = self.said()
        more = {"X-Echo": said, "WWW-Authenticate": f'Bearer realm="{said}"', "Set-Cookie": f"a={said}"}
        if kind == "redirect":
            more["Location"] = f"{self.server.elsewhere}/v1/chat/completions?key={said.split(' | ')[0]}"
        if kind == "json" and status != 200:
            self.reply(status, json.dumps({"error": {"message": f"no: {said}", "code": said}}), reason=said, **more)
        elif kind == "html":
            self.reply(status, f"<html><body>{said}</body></html>", "text/html", reason=said, **more)
        else:
            self.reply(status, said, "text/plain", reason=said, **more)

    def reply(self, status: int, text: str, kind: str = "application/json", reason: str = "X", **more: str) -> None:
        """One answer that ends its connection."""
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Type: {kind}", f"Content-Length: {len(text.encode())}"]
        head += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        self.raw("\r\n".join([*head, "Connection: close", "", text]))

    def raw(self, text: str) -> None:
        """Bytes as they are."""
        self.close_connection = True
        self.wfile.write(text.encode())

    def stream(self, *chunks: Any, done: bool = True) -> None:
        """Events of a completion; a text goes out as it is."""
        lines = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}" for chunk in chunks]
        lines += ["data: [DONE]"] if done else []
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        self.raw(head + "\n\n".join(lines) + "\n\n")

    @staticmethod
    def delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        """One chunk."""
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def hello(self, body: dict[str, Any]) -> None:
        self.stream(self.delta(content="Hello", finish="stop"))

    def json_error_text(self, body: dict[str, Any]) -> None:
        self.reply(400, json.dumps({"error": self.said()}))

    def context(self, body: dict[str, Any]) -> None:
        self.reply(400, json.dumps({"error": {"message": f"maximum context length is 10: {self.said()}"}}))

    def sse_error(self, body: dict[str, Any]) -> None:
        self.stream(self.delta(content="half"), {"error": {"message": self.said(), "type": self.said()}})

    def sse_error_text(self, body: dict[str, Any]) -> None:
        self.stream(self.delta(content="half"), {"error": self.said()})

    def sse_object_error(self, body: dict[str, Any]) -> None:
        self.stream({"object": "error", "message": self.said(), "code": 400})

    def sse_text(self, body: dict[str, Any]) -> None:
        said = self.said()
        pieces = [said[at : at + 3] for at in range(0, len(said), 3)]
        self.stream(*(self.delta(content=piece) for piece in pieces), self.delta(finish="stop"))

    def sse_thought(self, body: dict[str, Any]) -> None:
        said = self.said()
        pieces = [said[at : at + 5] for at in range(0, len(said), 5)]
        reported = [self.delta(reasoning_content=piece) for piece in pieces]
        self.stream(*reported, self.delta(content="done", finish="stop"))

    def sse_call(self, body: dict[str, Any]) -> None:
        if any(message["role"] == "tool" for message in body["messages"]):
            return self.hello(body)
        text = json.dumps({"path": self.said()})
        calls = [{"index": 0, "id": "1", "function": {"name": "read_file", "arguments": text[:9]}}]
        rest = [{"index": 0, "function": {"arguments": text[9:]}}]
        return self.stream(self.delta(tool_calls=calls), self.delta(tool_calls=rest, finish="tool_calls"))

    def call_mcp(self, body: dict[str, Any]) -> None:
        self.server.bodies.append(body)
        if any(message["role"] == "tool" for message in body["messages"]):
            return self.hello(body)
        call = {"index": 0, "id": "1", "function": {"name": "echo_look", "arguments": '{"text": "there"}'}}
        return self.stream(self.delta(tool_calls=[call], finish="tool_calls"))

    def sse_names(self, body: dict[str, Any]) -> None:
        if any(message["role"] == "tool" for message in body["messages"]):
            return self.hello(body)
        call = {"index": 0, "id": self.said(), "function": {"name": self.said(), "arguments": "{}"}}
        return self.stream(self.delta(tool_calls=[call], finish="tool_calls"))

    def sse_junk(self, body: dict[str, Any]) -> None:
        self.stream(f"data: {{{self.said()}", f"event: {self.said()}", f": {self.said()}", done=False)

    def sse_finish(self, body: dict[str, Any]) -> None:
        self.stream(self.delta(content="half", finish=self.said()))

    def html_200(self, body: dict[str, Any]) -> None:
        self.reply(200, self.said(), "text/html")

    def json_200(self, body: dict[str, Any]) -> None:
        self.reply(200, json.dumps({"error": {"message": self.said()}}))

    def bad_status_line(self, body: dict[str, Any]) -> None:
        self.raw(f"HTTP/1.1 {self.said()}\r\n\r\n")

    def bad_header(self, body: dict[str, Any]) -> None:
        self.raw(f"HTTP/1.1 200 OK\r\n{self.said()}\r\n\r\n")

    def bad_chunk(self, body: dict[str, Any]) -> None:
        self.raw(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{self.said()}\r\n")

    def bad_gzip(self, body: dict[str, Any]) -> None:
        self.raw(f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n{self.said()}")

    def cut(self, body: dict[str, Any]) -> None:
        self.stream(self.delta(content="half"), done=False)


class HostileServer(ThreadingHTTPServer):
    """`seen` holds (path, headers) of everything asked; redirects lead to `elsewhere`. The model `call-mcp` calls the
    tool `echo_look`.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []  # of those who call a tool
        self.elsewhere = ""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def headers(self, name: str) -> set[str]:
        """What was sent under this name."""
        return {headers[name] for _, headers in list(self.seen) if name in headers}

    def basic(self, name: str) -> set[str]:
        """What was sent as `user:password` under this name."""
        coded = (re.sub("^Basic ", "", value) for value in self.headers(name) if value.startswith("Basic "))
        return {base64.b64decode(value).decode() for value in coded}

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is expected here."""


def hostile_server() -> AbstractContextManager[HostileServer]:
    """A running server."""
    return served(HostileServer())
