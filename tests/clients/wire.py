"""A blocking client of modeld's own wire, independent of the product's client: sockets, lines and JSON."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.errors import ModeldError, from_wire
from shared.lease import reader
from shared.paths import DataRoot
from shared.protocol.api import PROTOCOL

WIRE_SECONDS = 120.0

JsonObject = dict[str, Any]


class Wire:
    """One connection to the owner, or to the one instance that runs."""

    def __init__(self, root: Path, *, name: str = "wire-test") -> None:
        survey = reader.survey(DataRoot(root))
        owner = survey.owner if survey.owner is not None and not survey.owner.dead else None
        found = owner or (survey.living[0] if survey.living else None)
        assert found is not None, f"no modeld runs on {root}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(WIRE_SECONDS)
        try:
            self._socket.connect(found.endpoint.removeprefix("unix:"))
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")
        self._next = 0
        self.fence = ""
        token = Path(found.token_file).read_text(encoding="utf-8").strip()
        client = {"name": name, "version": "1", "pid": os.getpid()}
        self.hello = self.request("hello", {"protocol": PROTOCOL, "token": token, "client": client})
        self.fence = self.hello["instance"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def begin(self, method: str, params: JsonObject) -> int:
        """Send a request; its id."""
        self._next += 1
        if self.fence:
            params = {**params, "fence": self.fence}
        body = json.dumps({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        self._socket.sendall(body.encode() + b"\n")
        return self._next

    def finish(self, number: int, on_event: Callable[[JsonObject], None] | None = None) -> JsonObject:
        """The result of a request; its events go to `on_event`. Raises the typed error."""
        while True:
            line = self._lines.readline()
            if not line:
                raise ConnectionError("modeld closed the connection")
            message = json.loads(line)
            if message.get("method") == "session/event":
                if on_event is not None and message["params"]["request"] == number:
                    on_event(message["params"]["event"])
            elif message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise from_wire(message["error"])
                result: JsonObject = message["result"]
                return result

    def next_event(self, number: int) -> JsonObject:
        """The next event of a running request; its own end is an error here."""
        while True:
            line = self._lines.readline()
            if not line:
                raise ConnectionError("modeld closed the connection")
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                raise AssertionError(f"ended before: {message}")
            if message.get("method") == "session/event" and message["params"]["request"] == number:
                event: JsonObject = message["params"]["event"]
                return event

    def notify(self, method: str, params: JsonObject) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": {**params, "fence": self.fence}})
        self._socket.sendall(body.encode() + b"\n")

    def request(
        self, method: str, params: JsonObject | None = None, on_event: Callable[[JsonObject], None] | None = None
    ) -> JsonObject:
        return self.finish(self.begin(method, params or {}), on_event)

    def status(self) -> JsonObject:
        return self.request("status")

    def turn(self, model: str, messages: list[JsonObject], **more: Any) -> tuple[str, JsonObject]:
        """A greedy turn, loading the model where nothing is loaded: its text and its result."""
        text: list[str] = []

        def take(event: JsonObject) -> None:
            if event["type"] == "text":
                text.append(event["text"])

        params = {"temperature": 0.0, "max_tokens": 64, **more.pop("params", {})}
        asked = {"model": model, "messages": messages, "params": params, "allow_load": True, **more}
        result = self.request("session/turn", asked, take)
        return "".join(text), result

    def wait_state(self, state: str, seconds: float) -> float:
        """Seconds until the slot was in this state."""
        started = time.monotonic()
        while (now := self.status()["state"]) != state:
            waited = time.monotonic() - started
            assert waited < seconds, f"still {now} after {waited:.1f} s, wanted {state}"
            time.sleep(0.01)
        return time.monotonic() - started


class Asking:
    """The status of whoever serves a data root, over one connection that is recreated when it was lost."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._wire: Wire | None = None

    def status(self) -> JsonObject:
        """As it is now; empty when nobody answers."""
        for _ in range(2):  # the connection may be that to an instance that has ended
            try:
                self._wire = self._wire or Wire(self.root, name="asking")
                return self._wire.status()
            except (OSError, AssertionError, ModeldError):
                self.close()
        return {}

    def close(self) -> None:
        """Leave."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def user(text: str) -> list[JsonObject]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]
