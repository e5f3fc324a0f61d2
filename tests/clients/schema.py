"""Judges everything an agent writes: the official JSON schema, JSON-RPC's envelope, and ACP's order of messages."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

#: updates that belong to a turn: none may come before its start or after its response
TURN_UPDATES = frozenset({"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"})


class WireCheck:
    """Fed with the lines of both directions in order; `problems` holds what was wrong, `seen` what came."""

    def __init__(self, schema: Path) -> None:
        self._defs: dict[str, Any] = json.loads(schema.read_text(encoding="utf-8"))["$defs"]
        self._validators: dict[str, Draft202012Validator] = {}
        self._asked: dict[str, tuple[str, dict[str, Any]]] = {}
        self._sessions: set[str] = set()
        self._turns: Counter[str] = Counter()
        self._loads: Counter[str] = Counter()
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()

    def to_agent(self, line: str) -> None:
        """What the client wrote; it is not judged, only remembered."""
        try:
            message = json.loads(line)
        except ValueError:
            return
        if isinstance(message, dict) and "method" in message and "id" in message:
            params = message.get("params")
            params = params if isinstance(params, dict) else {}
            self._asked[json.dumps(message["id"])] = (str(message["method"]), params)
            session = str(params.get("sessionId", ""))
            if message["method"] == "session/prompt":
                self._turns[session] += 1
            elif message["method"] == "session/load":
                self._loads[session] += 1
                self._sessions.add(session)
            elif message["method"] == "session/resume":
                self._sessions.add(session)

    def from_agent(self, line: str) -> None:
        """One line the agent wrote, with its line end."""
        if not line.endswith("\n"):
            self._problem("a line without its end", line)
        try:
            message = json.loads(line)
        except ValueError:
            self._problem("not JSON", line)
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._problem("not a JSON-RPC 2.0 object", line)
        elif "method" in message:
            self._request_or_update(message, line)
        else:
            self._response(message, line)

    def feed_log(self, log: Path) -> None:
        """A whole log of wiretap.py."""
        for entry in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
            if entry["d"] == ">":
                self.to_agent(entry["s"])
            elif entry["d"] == "<":
                self.from_agent(entry["s"])

    def _request_or_update(self, message: dict[str, Any], line: str) -> None:
        method, params = str(message["method"]), message.get("params")
        kind = "Request" if "id" in message else "Notification"
        update = params.get("update", {}).get("sessionUpdate", "") if isinstance(params, dict) else ""
        self.seen[f"{method} {update}".strip()] += 1
        if method.startswith("_"):
            return
        name = self._definition("client", method, kind) or self._definition("protocol", method, kind)
        if name is None:
            self._problem(f"{method} is no {kind.lower()} of an agent", line)
            return
        self._validate(name, params, line)
        if method == "session/update" and isinstance(params, dict):
            self._order(str(params.get("sessionId", "")), str(update), line)

    def _order(self, session: str, update: str, line: str) -> None:
        if session not in self._sessions:
            self._problem("an update before the response that names its session", line)
        if update in TURN_UPDATES and not self._turns[session] and not self._loads[session]:
            self._problem("an update of a turn outside of any turn", line)

    def _response(self, message: dict[str, Any], line: str) -> None:
        if ("result" in message) == ("error" in message):
            self._problem("not exactly one of result and error", line)
            return
        key = json.dumps(message.get("id"))
        method, params = self._asked.pop(key, ("", {}))
        if "error" in message:
            self.seen[f"{method or '?'} error"] += 1
            self._validate("Error", message["error"], line)
        else:
            self.seen[f"{method} result"] += 1
            if not method:
                self._problem("a result to no request", line)
            elif (name := self._definition("agent", method, "Response")) is not None:
                self._validate(name, message["result"], line)
        session = str(params.get("sessionId", ""))
        if method == "session/new" and isinstance(message.get("result"), dict):
            self._sessions.add(str(message["result"].get("sessionId", "")))
        elif method == "session/prompt":
            self._turns[session] -= 1
        elif method == "session/load":
            self._loads[session] -= 1

    def _definition(self, side: str, method: str, kind: str) -> str | None:
        for name, body in self._defs.items():
            if body.get("x-method") == method and body.get("x-side") == side and name.endswith(kind):
                return name
        return None

    def _validate(self, name: str, value: object, line: str) -> None:
        if name not in self._validators:
            self._validators[name] = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": self._defs})
        for error in self._validators[name].iter_errors(value):
            self._problem(f"{name}: {'/'.join(map(str, error.path))}: {error.message[:200]}", line)
        body = self._defs[name]
        if isinstance(value, dict) and "properties" in body and not {"oneOf", "anyOf", "allOf"} & set(body):
            unknown = set(value) - set(body["properties"])
            if unknown:
                self._problem(f"{name}: keys the schema does not name: {sorted(unknown)}", line)

    def _problem(self, what: str, line: str) -> None:
        self.problems.append(f"{what} | {line[:240]!r}")


class LateCheck(WireCheck):
    """Judges when asked to, not while the lines come: where time is measured the judge must not take part of it."""

    def __init__(self, schema: Path) -> None:
        super().__init__(schema)
        self._lines: list[tuple[bool, str]] = []

    def to_agent(self, line: str) -> None:
        """Kept until `judge`."""
        self._lines.append((True, line))

    def from_agent(self, line: str) -> None:
        """Kept until `judge`."""
        self._lines.append((False, line))

    def judge(self) -> list[str]:
        """What was wrong with the lines so far."""
        lines, self._lines = self._lines, []
        for ours, line in lines:
            (super().to_agent if ours else super().from_agent)(line)
        return self.problems
