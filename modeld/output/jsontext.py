"""JSON values out of a growing text, streamed as they come and made valid where models are sloppy. Pure."""

from __future__ import annotations

import json
import re

from modeld.output.reader import Reader, Sink, Steps
from shared.text.nesting import loads_json

_OUTSIDE = re.compile(r'["{}\[\],\s]')
_INSIDE = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = '"\\/bfnrtu'


class JsonValue:
    """Consumes exactly one JSON value, passing its text to `sink`.

    Raw control characters in strings are escaped and escapes that JSON does not know are made plain;
    nothing else is repaired: whether the value is valid is judged when it is whole.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._begun = False
        self.done = False

    def scan(self, text: str, at: int) -> int:
        """See `reader.Scanner`."""
        parts: list[str] = []
        while at < len(text) and not self.done:
            at = self._string(text, at, parts) if self._in_string else self._structure(text, at, parts)
        if parts:
            self._sink("".join(parts))
        return at

    def _string(self, text: str, at: int, parts: list[str]) -> int:
        if self._escaped:
            self._escaped = False
            parts.append(_escape(text[at]))
            return at + 1
        found = _INSIDE.search(text, at)
        if found is None:
            parts.append(text[at:])
            return len(text)
        char = found.group()
        parts.append(text[at : found.start()])
        if char == "\\":
            self._escaped = True
        elif char == '"':
            parts.append(char)
            self._in_string = False
            self.done = self._depth == 0
        else:
            parts.append(json.dumps(char)[1:-1])
        return found.end()

    def _structure(self, text: str, at: int, parts: list[str]) -> int:
        found = _OUTSIDE.search(text, at)
        end = found.start() if found else len(text)
        if end > at:
            parts.append(text[at:end])
            self._begun = True
        if found is None:
            return end
        char = found.group()
        if self._depth == 0 and (char in "}]," or (char.isspace() and self._begun)):
            self.done = True  # a bare number or word ends before this
            return end
        self._begun = True
        parts.append(char)
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.done = self._depth == 0
        return found.end()


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return "\\" + char
    return "" if char == "\n" else ("'" if char == "'" else "\\\\" + json.dumps(char)[1:-1])


def raw_value(reader: Reader) -> Steps[str | None]:
    """The text of the next value, held until it is whole; None if the output ends in it."""
    parts: list[str] = []
    value = JsonValue(parts.append)
    whole = yield from reader.take(value)
    return "".join(parts) if whole else None


def string(reader: Reader) -> Steps[str | None]:
    """The next value if it is a string, decoded; else None (and the value is consumed)."""
    text = yield from raw_value(reader)
    try:
        value = loads_json(text) if text else None
    except ValueError:
        return None
    return value if isinstance(value, str) else None
