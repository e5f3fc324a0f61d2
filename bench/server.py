"""One llama-server on a loopback port, for as long as a `with` lasts."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_SECONDS = 120.0


class LlamaServer:
    """The peer. Raises RuntimeError when it does not come up, with the end of what it said."""

    def __init__(self, program: Path, model: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", str(self.port), "--no-ui", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._errors: list[str] = []

    def __enter__(self) -> Self:
        import threading

        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError("llama-server did not come up: " + "".join(self._errors[-15:]))
            time.sleep(0.05)
        return self

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-40:], line]

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    def post(self, path: str, body: dict[str, Any], timeout: float = 600.0) -> tuple[int, dict[str, Any]]:
        """The status and the JSON of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
            return answer.status, content
        finally:
            connection.close()

    def stream(self, path: str, body: dict[str, Any], timeout: float = 600.0) -> Iterator[dict[str, Any]]:
        """The events of one streamed answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            for line in connection.getresponse():
                text = line.decode().strip()
                if text.startswith("data: ") and text != "data: [DONE]":
                    yield json.loads(text[6:])
        finally:
            connection.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it and see it gone."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        assert self._process.stderr is not None
        self._process.stderr.close()
