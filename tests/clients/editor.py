"""A plain LSP editor of our own: Content-Length framing, no library between the test and the bytes.

One thread reads, the test's thread asks and waits, each wait with a deadline.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clients.child import AnsweredError, Child, JsonObject
from shared.protocol.framing import HeaderFramer, Oversized

ANSWER_SECONDS = 60.0
LIMIT = 1 << 26


class LspError(AnsweredError):
    """The error the bridge answered with."""


class Pending:
    """A request on its way, with its partial results."""

    def __init__(self, number: int, method: str) -> None:
        self.number = number
        self.method = method
        self.answered = threading.Event()
        self.reply: JsonObject = {}
        self.events: list[JsonObject] = []
        self.done_at = 0.0

    def texts(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "text")

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


class Editor(Child):
    """One spawned `acp-bridge lsp`."""

    def __init__(self, environ: Mapping[str, str], work: Path, command: Sequence[str] = ()) -> None:
        self.work = work
        self.reported: list[tuple[str, JsonObject]] = []
        self.asked: list[JsonObject] = []
        self.answer: Callable[[str, JsonObject], Any] = lambda method, params: {"answer": None}
        self.noise: list[bytes] = []
        self.others: list[JsonObject] = []
        self.capabilities: JsonObject = {}
        self.moved = threading.Condition()
        self._waiting: dict[int | str, Pending] = {}
        self._tokens: dict[int | str, Pending] = {}
        self._next = 0
        self._lock = threading.Lock()
        super().__init__(list(command) or [sys.executable, "-m", "acp_bridge", "lsp"], environ, work, name="lsp")

    # --- life --------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        said = self.errors()
        found = [f"not framed: {data!r}" for data in self.noise]
        return found + [said for sign in ("Traceback", "acp-bridge:") if sign in said]

    # --- talking -----------------------------------------------------------------------------------

    def send_body(self, body: bytes) -> None:
        self.write(HeaderFramer(LIMIT).frame(body))

    def send(self, message: JsonObject) -> None:
        self.send_body(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode())

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def begin(self, method: str, params: Any, *, stream: bool = False) -> Pending:
        """Send a request and do not wait. With `stream` it carries a token, and its partial results are kept."""
        with self._lock:
            self._next += 1
            pending = Pending(self._next, method)
            self._waiting[pending.number] = pending
        if stream:
            token = f"t{pending.number}"
            self._tokens[token] = pending
            params = {**params, "partialResultToken": token}
        self.send({"id": pending.number, "method": method, "params": params})
        return pending

    def wait(self, pending: Pending, seconds: float = ANSWER_SECONDS) -> Any:
        if not pending.answered.wait(seconds):
            raise TimeoutError(f"{pending.method} was not answered within {seconds} s; stderr: {self.errors()[-2000:]}")
        if "error" in pending.reply:
            raise LspError(pending.reply["error"])
        return pending.reply["result"]

    def request(self, method: str, params: Any = None, seconds: float = ANSWER_SECONDS) -> Any:
        return self.wait(self.begin(method, params if params is not None else {}), seconds)

    def cancel(self, pending: Pending) -> None:
        self.notify("$/cancelRequest", {"id": pending.number})

    def until(self, condition: Callable[[], Any], label: str, seconds: float = ANSWER_SECONDS) -> Any:
        """The first true answer of `condition`, asked after each message."""
        deadline = time.monotonic() + seconds
        while not (answer := condition()):  # outside of the lock: it may ask, and the reader must go on
            left = deadline - time.monotonic()
            assert left > 0, f"not within {seconds} s: {label}; stderr: {self.errors()[-2000:]}"
            with self.moved:
                self.moved.wait(min(left, 0.05))
        return answer

    # --- what editors do ---------------------------------------------------------------------------

    def initialize(self, *, pid: int | None = None, name: str = "Test Code", **options: Any) -> JsonObject:
        folder = self.work.as_uri()
        answer: JsonObject = self.request(
            "initialize",
            {
                "processId": pid if pid is not None else os.getpid(),
                "clientInfo": {"name": name, "version": "1"},
                "rootUri": folder,
                "workspaceFolders": [{"uri": folder, "name": self.work.name}],
                "capabilities": {"window": {"workDoneProgress": True}},
                "initializationOptions": {"wire": 1, **options},
            },
        )
        self.capabilities = answer["capabilities"]
        self.notify("initialized", {})
        return answer

    def model(self, part: str, seconds: float = 20.0) -> JsonObject:
        """The selectable model whose id contains `part`; waits for it to be listed."""
        deadline = time.monotonic() + seconds
        while True:
            models = self.request("modeld/models")["models"]
            found = [model for model in models if part.lower() in model["id"].lower() and model["selectable"]]
            if found:
                return dict(found[0])
            assert time.monotonic() < deadline, f"{part} is not selectable: {models}"
            with self.moved:
                self.moved.wait(0.2)

    def turn(self, model: str, *history: str, **more: Any) -> Pending:
        """Begin a streamed turn: `history` alternates user and assistant."""
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(history)]
        return self.begin("modeld/turn", {"model": model, "messages": messages, **more}, stream=True)

    def open(self, uri: str, text: str, language: str = "python") -> None:
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def tell(self, method: str) -> list[JsonObject]:
        """The params of the notifications of this method so far."""
        return [params for name, params in list(self.reported) if name == method]

    # --- reading -----------------------------------------------------------------------------------

    def read(self) -> None:
        assert self.process.stdout is not None
        framer = HeaderFramer(LIMIT)
        descriptor = self.process.stdout.fileno()
        while data := os.read(descriptor, 65536):
            for body in framer.feed(data):
                self._take(body)
        for pending in list(self._waiting.values()):
            if not pending.answered.is_set():
                pending.reply = {"error": {"code": 0, "message": "the bridge is gone", "data": {"kind": "gone"}}}
                pending.answered.set()
        with self.moved:
            self.moved.notify_all()

    def _take(self, body: bytes | Oversized) -> None:
        if isinstance(body, Oversized):
            self.noise.append(body.head)
            return
        try:
            message = json.loads(body)
        except ValueError:
            self.noise.append(body)
            return
        method = message.get("method")
        if method is not None and "id" in message:
            self.asked.append(message)
            threading.Thread(target=self._reply, args=(message,), daemon=True).start()
        elif method == "$/progress" and message["params"]["token"] in self._tokens:
            self._tokens[message["params"]["token"]].events.append(message["params"]["value"])
        elif method is not None:
            self.reported.append((method, message["params"]))
        elif message.get("id") in self._waiting:
            pending = self._waiting[message["id"]]
            pending.done_at = time.monotonic()
            pending.reply = message
            pending.answered.set()
        else:
            self.others.append(message)
        with self.moved:
            self.moved.notify_all()

    def _reply(self, message: JsonObject) -> None:
        result = self.answer(message["method"], message["params"])
        try:
            self.send({"id": message["id"], "result": result})
        except (BrokenPipeError, ValueError):
            return
