"""A real `acp-bridge http` before a real modeld on the scripted engine, and a client of it without any library."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from lsp_world import World
from modeld_process import Modeld

SECONDS = 60.0
HELLO = [{"role": "user", "content": "hello"}]


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of a stream that ended as it should."""
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]", lines[-3:]
        return [json.loads(line) for line in lines[:-1]]

    @property
    def text(self) -> str:
        return "".join(
            choice["delta"].get("content") or "" for event in self.events for choice in event.get("choices", [])
        )


class HttpServer:
    """One process of `acp-bridge http`."""

    def __init__(self, world: World, *options: str, **environ: str) -> None:
        self.world = world
        self.said = world.folder / "http.log"
        self._command = [sys.executable, "-P", "-m", "acp_bridge", "http", "--json", *options]
        self._environ = {**world.environ, **environ}
        self.where: dict[str, Any] = {}
        self.key = ""

    def start(self) -> None:
        with self.said.open("ab") as errors:
            self.process = subprocess.Popen(
                self._command, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said.read_text()
        self.where = json.loads(line)
        if self.where["key_file"] is not None:
            self.key = Path(self.where["key_file"]).read_text().strip()

    @property
    def port(self) -> int:
        return int(self.where["url"].rpartition(":")[2].partition("/")[0])

    @property
    def authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def connect(self) -> socket.socket:
        """A raw connection."""
        if self.where["socket"] is None:
            return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(SECONDS)
        made.connect(self.where["socket"])
        return made

    def connection(self) -> http.client.HTTPConnection:
        made = http.client.HTTPConnection("127.0.0.1", timeout=SECONDS)
        made.sock = self.connect()
        return made

    def ask(self, method: str, path: str, body: Any = None, *, agent: str = "tester/1", **headers: str) -> Answer:
        """One request. `headers` go before the usual ones; an empty one is not sent."""
        sent = {"user-agent": agent, **self.authorization}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self.connection()
        try:
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, told, response.read())
        finally:
            connection.close()

    def chat(self, model: str = "alpha", *, agent: str = "tester/1", **fields: Any) -> Answer:
        return self.ask("POST", "/v1/chat/completions", {"model": model, "messages": HELLO, **fields}, agent=agent)

    @contextmanager
    def begun(self, model: str = "alpha", *, agent: str = "tester/1", **fields: Any) -> Iterator[socket.socket]:
        """A chat that has been asked for; at the end of the block its client hangs up."""
        body = json.dumps({"model": model, "messages": HELLO, **fields}).encode()
        lines = [
            "POST /v1/chat/completions HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self.key}",
            f"User-Agent: {agent}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        with self.connect() as made:
            made.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            yield made

    def until_state(self, state: str) -> dict[str, Any]:
        """modeld's status once it is in this state."""
        found: list[dict[str, Any]] = []

        def reached() -> bool:
            found.append(self.status())
            return bool(found[-1]["state"] == state)

        self.until(reached, f"modeld is {state}")
        return found[-1]

    def raw(self, data: bytes) -> bytes:
        """What comes back until the server closes, or stays silent for a moment after a whole answer."""
        with self.connect() as made:
            made.sendall(data)
            made.settimeout(10.0)
            received = b""
            while b"\r\n\r\n" not in received or not _whole(received):
                try:
                    part = made.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    break
                received += part
            return received

    def status(self) -> dict[str, Any]:
        """What modeld says of itself, by its own command."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "modeld", "status", "--json"],
            env=self._environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def _whole(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return False


@contextmanager
def serving(world: World, *options: str, **environ: str) -> Iterator[HttpServer]:
    """A running server; at its end it has said nothing of a defect."""
    server = HttpServer(world, *options, **environ)
    server.start()
    try:
        yield server
    finally:
        code = server.end()
    said = server.said.read_text()
    assert code == 0, said
    assert "Traceback" not in said, said
    assert "acp-bridge:" not in said, said


@contextmanager
def modeld(daemon: Modeld) -> Iterator[Modeld]:
    """Around tests that need no loop of their own."""
    anyio.run(daemon.start)
    try:
        yield daemon
    finally:
        anyio.run(daemon.end)
    assert "defect" not in daemon.log(), daemon.log()
