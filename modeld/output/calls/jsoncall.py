"""Calls written as JSON: `{"name": ..., "arguments": {...}}`, alone or in an array. Pure."""

from __future__ import annotations

from typing import Literal

from modeld.output.emitter import Emitter, is_object
from modeld.output.jsontext import JsonValue, raw_value, string
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook
from shared.text.nesting import loads_json

#: `call`: complete. `cut`: begun and reported, never completed. `text`: not a call.
Outcome = Literal["call", "cut", "text"]

_NAMES = frozenset({"name", "tool_name", "function", "tool"})
_ARGUMENTS = frozenset({"arguments", "parameters", "args", "input"})
_FILLERS = frozenset({"type"})
_IDS = frozenset({"id", "tool_call_id", "call_id"})


class _Members:
    """What is known of one call while its object is read."""

    def __init__(self) -> None:
        self.name = ""
        self.call_id = ""
        self.wrapped = False  # inside `{"function": {...}}`, which is written around a call once
        self.early = ""  # arguments that came before the name
        self.outcome: Outcome | None = None


def call_object(reader: Reader, out: Emitter, book: ToolBook, *, known_only: bool = False) -> Steps[Outcome]:
    """Read one object at the cursor. `known_only`: without marks around it, it must name a tool of the turn."""
    members = _Members()
    if not (yield from _object(reader, out, book, members, known_only)) and members.outcome is None:
        return "text"
    if members.outcome is None:
        if not members.name or (known_only and not members.early):
            return "text"
        out.begin_call(members.name, members.call_id)
        out.arguments(members.early or "{}")
        members.outcome = "call" if out.end_call() else "cut"
    return members.outcome


def _object(reader: Reader, out: Emitter, book: ToolBook, members: _Members, known_only: bool) -> Steps[bool]:
    """Members up to the closing brace; False where this is not such an object or it never ends."""
    if not (yield from reader.accept("{")):
        return False
    while True:
        yield from reader.skip_space()
        char = yield from reader.peek()
        if char == "}":
            return (yield from reader.accept("}"))
        if char == ",":
            yield from reader.accept(",")
        elif char == '"':
            key = yield from string(reader)
            yield from reader.skip_space()
            if key is None or not (yield from reader.accept(":")):
                return False
            yield from reader.skip_space()
            if not (yield from _member(reader, out, book, members, known_only, key)):
                return False
        else:
            return False


def _member(reader: Reader, out: Emitter, book: ToolBook, members: _Members, known_only: bool, key: str) -> Steps[bool]:
    char = yield from reader.peek()
    if key in _NAMES and char == '"':
        members.name = (yield from string(reader)) or ""
        return bool(members.name) and (not known_only or members.name in book)
    if key == "function" and char == "{" and not members.wrapped:
        members.wrapped = True
        return (yield from _object(reader, out, book, members, known_only))
    if key in _IDS and char == '"':
        members.call_id = (yield from string(reader)) or ""
        return True
    if key in _ARGUMENTS and members.outcome is None and members.name:
        out.begin_call(members.name, members.call_id)
        members.outcome = "cut"
        if (yield from arguments(reader, out)) and out.end_call():
            members.outcome = "call"
        return members.outcome == "call"
    if known_only and key not in _ARGUMENTS and key not in _FILLERS:
        return False  # some other object: it is an answer and must not wait for its end
    text = yield from raw_value(reader)
    if key in _ARGUMENTS and text is not None:
        members.early = plain_arguments(text)
    return text is not None


def arguments(reader: Reader, out: Emitter) -> Steps[bool]:
    """The value at the cursor as the arguments of the call begun: an object streams, a string is unpacked."""
    out.expect_arguments(reader.rest)
    yield from reader.skip_space()
    if (yield from reader.peek()) == "{":
        return (yield from reader.take(JsonValue(out.arguments)))
    text = yield from raw_value(reader)
    if text is None:
        return False
    out.arguments(plain_arguments(text))
    return True


def plain_arguments(text: str) -> str:
    """Arguments as an object's text: some models write it into a string, or null for none."""
    try:
        value = loads_json(text)
    except ValueError:
        return text
    if isinstance(value, str) and is_object(value):
        return value
    return "{}" if value in (None, "", []) else text
