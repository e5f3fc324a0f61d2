"""Puts tool calls together from the pieces of a stream, however a server cuts and numbers them. Pure.

vLLM, llama-server and OpenAI number the pieces of a call; Ollama and Gemini send whole calls, all of them with the
index 0 or without any; some repeat the name in each piece, or send the arguments as an object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shared.protocol import api
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner

#: Of arguments that cannot be used, what the model is shown again.
SHOWN = 200


class _Call:
    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.parts: list[str] = []  # of its arguments: a long one comes in thousands

    @property
    def arguments(self) -> str:
        """As far as they have come."""
        return "".join(self.parts)

    def ended_before(self, arguments: str) -> bool:
        """Whether these are another call's: behind the end of an object no other one begins, outside of a text."""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and arguments.lstrip().startswith("{")


class Calls:
    """The calls of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, piece: Any) -> bool:
        """Take one piece; false for what is none."""
        if not isinstance(piece, dict):
            return False
        given = piece.get("function")
        function: dict[str, Any] = given if isinstance(given, dict) else piece
        name, written = _text(function.get("name")), function.get("arguments")
        if given is None and not name and written is None:
            return False
        arguments = _written(written)
        number, index = _text(piece.get("id")), piece.get("index")
        call = self._of(index if isinstance(index, int) else None, number, name, arguments)
        call.id = call.id or number
        if name and name != call.name:
            call.name += name
        if arguments:
            call.parts.append(arguments)
        return True

    def finished(self, clean: Cleaner) -> list[api.ToolCall]:
        """Every call, cleaned of what was sent to get it. One that cannot be run says so in `fault`."""
        used: set[str] = set()
        return [self._finished(place, call, clean, used) for place, call in enumerate(self._calls)]

    def _of(self, index: int | None, number: str, name: str, arguments: str) -> _Call:
        """The call that a piece belongs to, or a new one."""
        known = [call for call in self._calls if call.index == index] if index is not None else self._calls[-1:]
        call = known[-1] if known else None
        if call is not None:
            other = bool(number and call.id and number != call.id)
            again = bool(name) and call.ended_before(arguments)
            if not other and not again:
                return call
        self._calls.append(_Call(index))
        return self._calls[-1]

    @staticmethod
    def _finished(place: int, call: _Call, clean: Cleaner, used: set[str]) -> api.ToolCall:
        number = clean.known(call.id) or f"call-{place}"
        number = number if number not in used else f"{number}-{place}"
        used.add(number)
        name = clean.known(call.name)
        written = call.arguments or "{}"
        try:
            arguments = decode_json(written, dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError):
            fault = f"its arguments are not a JSON object: {clean.known(written)[:SHOWN]}"
            return api.ToolCall(id=number, name=name, arguments="{}", fault=fault)
        cleaned = clean.value(arguments)
        text = written if cleaned == arguments else msgspec.json.encode(cleaned).decode()
        return api.ToolCall(id=number, name=name, arguments=text)


def _written(arguments: Any) -> str:
    """Arguments as the text that they are a part of."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
