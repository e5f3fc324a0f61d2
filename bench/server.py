"""A llama.cpp server on a loopback port, for as long as a `with` lasts: llama-server, or the one within xllamacpp."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_SECONDS = 120.0


class HttpServer:
    """The peer. Raises RuntimeError when it does not come up, with the end of what it said."""

    def __init__(self, port: int, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self.port = port
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # some end with it
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=None if environ is None else {**os.environ, **environ},
        )
        self._errors: list[str] = []

    def __enter__(self) -> Self:
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError("the server did not come up: " + "".join(self._errors[-15:]))
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
        for stream in (self._process.stdin, self._process.stderr):
            assert stream is not None
            stream.close()


class LlamaServer(HttpServer):
    """llama.cpp's own program with the given options."""

    def __init__(self, program: Path, model: Path, *options: str) -> None:
        port = free_port()
        fixed = ["-m", str(model), "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
        super().__init__(port, [str(program), *fixed, *options])


class XllamaServer(HttpServer):
    """The server within the package `xllamacpp`, which lies in `folder`. `fields` are set on its parameters."""

    def __init__(self, folder: Path, model: Path, threads: int, **fields: int | bool) -> None:
        port = free_port()
        values = {"n_gpu_layers": 0, "port": port, "use_jinja": True, **fields}
        command = [sys.executable, "-P", "-c", _SERVE, str(model), str(threads), json.dumps(values)]
        super().__init__(port, command, {"PYTHONPATH": str(folder)})


_SERVE = """
import json, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[2])
params.hostnames = ["127.0.0.1"]
for name, value in json.loads(sys.argv[3]).items():
    getattr(params, name)
    setattr(params, name, value)
server = xllamacpp.Server(params)
sys.stdin.read()
"""


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
