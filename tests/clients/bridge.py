"""A plain ACP client of our own: no library between the test and the bytes, every line judged by WireCheck.

One thread reads, the test's thread asks and waits, each wait with a deadline.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.child import AnsweredError, Child, JsonObject
from clients.schema import WireCheck

ANSWER_SECONDS = 120.0
Answerer = Callable[[str, JsonObject], JsonObject]


class BridgeError(AnsweredError):
    """The error a bridge answered with."""


@dataclass
class Pending:
    """A request on its way."""

    method: str
    session: str
    answered: threading.Event = field(default_factory=threading.Event)
    reply: JsonObject = field(default_factory=dict)
    updates: list[tuple[float, JsonObject]] = field(default_factory=list)
    sent: float = field(default_factory=time.monotonic)
    done: float = 0.0


@dataclass
class Turn:
    """What one prompt brought."""

    stop_reason: str
    updates: list[tuple[float, JsonObject]]
    started: float
    ended: float
    meta: JsonObject

    def _joined(self, kind: str) -> str:
        return "".join(u["content"].get("text", "") for _, u in self.updates if u["sessionUpdate"] == kind)

    def ended_by(self, limit: str) -> str:
        """What the reason has to be of a turn that nobody stopped: by its own count of tokens against the limit of
        its modeld (`MODELD_TURN_TOKENS`). A small model may not find its end.
        """
        return "max_tokens" if self.meta["modeld.turn"]["generated"] >= int(limit) else "end_turn"

    @property
    def text(self) -> str:
        return self._joined("agent_message_chunk")

    @property
    def thoughts(self) -> str:
        return self._joined("agent_thought_chunk")

    @property
    def chunks(self) -> int:
        return sum(u["sessionUpdate"] == "agent_message_chunk" for _, u in self.updates)

    @property
    def first_text_s(self) -> float:
        times = [at for at, u in self.updates if u["sessionUpdate"] == "agent_message_chunk"]
        return times[0] - self.started


def allow_once(method: str, params: JsonObject) -> JsonObject:
    """Answers permission requests like a person who says yes each time."""
    if method != "session/request_permission":
        raise NotImplementedError(method)
    options = params["options"]
    wanted = next((o for o in options if o["kind"] == "allow_once"), options[0])
    return {"outcome": {"outcome": "selected", "optionId": wanted["optionId"]}}


class Bridge(Child):
    """One spawned bridge, driven over its stdio."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        check: WireCheck,
        *,
        cwd: Path,
        answer: Answerer = allow_once,
        group: bool = False,
        text_ids: bool = False,
    ) -> None:
        self.check = check
        self.answer = answer
        self.updates: list[JsonObject] = []
        self.asked: list[tuple[str, JsonObject]] = []
        self.on_other: Callable[[JsonObject], None] | None = None
        self._lock = threading.Lock()
        self._waiting: dict[int | str, Pending] = {}
        self._text_ids = text_ids
        self._next = 0
        self._reading = threading.Event()
        self._reading.set()
        super().__init__(command, environ, cwd, name="bridge", group=group)

    # --- life --------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        return self.check.problems

    def pause_reading(self) -> None:
        """Leave what comes in the pipe; one line that was waited for may still be read."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    # --- asking ------------------------------------------------------------------------------------

    def send(self, message: JsonObject) -> None:
        """One message as it is."""
        self.send_line(json.dumps(message, ensure_ascii=False))

    def send_line(self, line: str) -> None:
        """One raw line."""
        with self._lock:
            self.check.to_agent(line)
            self.write(line.encode() + b"\n")

    def notify(self, method: str, params: JsonObject) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, params: JsonObject) -> Pending:
        """Send a request and do not wait."""
        pending = Pending(method, str(params.get("sessionId", "")))
        with self._lock:
            number: int | str = str(self._next) if self._text_ids else self._next
            self._next += 1
            self._waiting[number] = pending
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return pending

    def wait(self, pending: Pending, seconds: float = ANSWER_SECONDS) -> JsonObject:
        """The result. Raises BridgeError for an error, TimeoutError past the deadline."""
        if not pending.answered.wait(seconds):
            raise TimeoutError(f"{pending.method} was not answered within {seconds} s; stderr: {self.errors()}")
        if "error" in pending.reply:
            raise BridgeError(pending.reply["error"])
        result = pending.reply["result"]
        return result if isinstance(result, dict) else {}

    def request(self, method: str, params: JsonObject, seconds: float = ANSWER_SECONDS) -> JsonObject:
        return self.wait(self.begin(method, params), seconds)

    # --- what clients do ---------------------------------------------------------------------------

    def initialize(self, **capabilities: Any) -> JsonObject:
        return self.request(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": capabilities,
                "clientInfo": {"name": "plain", "version": "1"},
            },
        )

    def new_session(self, cwd: Path) -> JsonObject:
        return self.request("session/new", {"cwd": str(cwd), "mcpServers": []})

    def choose(self, session: str, option: str, value: str) -> JsonObject:
        return self.request("session/set_config_option", {"sessionId": session, "configId": option, "value": value})

    def find_model(self, result: JsonObject, part: str, seconds: float = 10.0) -> str:
        """The picker's value that contains `part`: from the result of new or load, or from the updates after it."""
        deadline = time.monotonic() + seconds
        latest = result
        while not any(part.lower() in value.lower() for value in model_values(latest)):
            assert time.monotonic() < deadline, f"{part} is not among {model_values(latest)}: {self.errors()}"
            time.sleep(0.01)
            for params in list(self.updates):
                if (
                    params["sessionId"] == result["sessionId"]
                    and params["update"]["sessionUpdate"] == "config_option_update"
                ):
                    latest = params["update"]
        return model_like(latest, part)

    def begin_prompt(self, session: str, text: str) -> Pending:
        blocks = [{"type": "text", "text": text}]
        return self.begin("session/prompt", {"sessionId": session, "prompt": blocks})

    def end_prompt(self, pending: Pending, seconds: float = ANSWER_SECONDS) -> Turn:
        result = self.wait(pending, seconds)
        return Turn(result["stopReason"], pending.updates, pending.sent, pending.done, result.get("_meta") or {})

    def prompt(self, session: str, text: str, seconds: float = ANSWER_SECONDS) -> Turn:
        return self.end_prompt(self.begin_prompt(session, text), seconds)

    def wait_update(self, pending: Pending, kind: str, seconds: float = ANSWER_SECONDS) -> None:
        """Return when an update of this kind came for the running prompt."""
        deadline = time.monotonic() + seconds
        seen = threading.Event()
        while not any(u["sessionUpdate"] == kind for _, u in pending.updates):
            if pending.answered.is_set() or time.monotonic() > deadline:
                raise TimeoutError(f"no {kind} came; reply {pending.reply}; stderr: {self.errors()}")
            seen.wait(0.005)

    # --- reading -----------------------------------------------------------------------------------

    def read(self) -> None:
        assert self.process.stdout is not None
        for raw in iter(self.process.stdout.readline, b""):
            self._reading.wait()
            now = time.monotonic()
            line = raw.decode("utf-8", "surrogateescape")
            with self._lock:
                self.check.from_agent(line)
            try:
                message = json.loads(line)
            except ValueError:
                continue  # judged above
            if isinstance(message, dict):
                self._handle(message, now)
        for pending in list(self._waiting.values()):
            if not pending.answered.is_set():
                message = f"the bridge is gone: {self.errors()}"
                pending.reply = {"error": {"code": 0, "message": message, "data": {"kind": "gone"}}}
                pending.answered.set()

    def _handle(self, message: JsonObject, now: float) -> None:
        if message.get("method") == "session/update":
            params = message["params"]
            self.updates.append(params)
            for pending in list(self._waiting.values()):
                if pending.session == params["sessionId"] and not pending.answered.is_set():
                    pending.updates.append((now, params["update"]))
        elif "method" in message and "id" in message:
            self.asked.append((message["method"], message["params"]))
            threading.Thread(target=self._reply, args=(message,), daemon=True).start()
        elif message.get("id") in self._waiting:
            pending = self._waiting[message["id"]]
            pending.reply, pending.done = message, now
            pending.answered.set()
        elif self.on_other is not None:
            self.on_other(message)

    def _reply(self, message: JsonObject) -> None:
        reply: JsonObject = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = self.answer(message["method"], message["params"])
        except NotImplementedError:
            reply["error"] = {"code": -32601, "message": "not offered"}
        try:
            self.send(reply)
        except (BrokenPipeError, ValueError):
            return


def model_option(result: JsonObject) -> JsonObject:
    """The config option of category model in the result of new, load, resume or set_config_option."""
    (option,) = [o for o in result["configOptions"] if o.get("category") == "model"]
    return dict(option)


def model_values(result: JsonObject) -> list[str]:
    """All values of the model picker, groups flattened."""
    values: list[str] = []
    for option in model_option(result)["options"]:
        values += [o["value"] for o in option["options"]] if "options" in option else [option["value"]]
    return values


def model_like(result: JsonObject, part: str) -> str:
    """The one value that contains `part`, whatever its case."""
    found = [value for value in model_values(result) if part.lower() in value.lower()]
    assert len(found) == 1, f"{part}: {found} of {model_values(result)}"
    return found[0]


def private_environment(root: Path, **more: str) -> dict[str, str]:
    """An environment in which a user has nothing yet but PATH and the data root `root/data`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
    folders = {"HOME": "home", "XDG_RUNTIME_DIR": "run", "XDG_CACHE_HOME": "home/.cache", "TMPDIR": "tmp"}
    for variable, name in folders.items():
        (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        kept[variable] = str(root / name)
    return {**kept, "MODELD_DATA_ROOT": str(root / "data"), **more}
