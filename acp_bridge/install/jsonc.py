"""JSON with comments: read where things stand, so that one value can be set or removed and nothing else moves. Pure.

Editors' settings allow comments and trailing commas. Everything here is pure and works on positions in the text: what
is not touched stays as it was, byte for byte.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"/]+")
#: Deeper nesting is a mistake or an attack; Python's own stack is not much deeper.
DEEPEST = 200


class Malformed(Exception):
    """The text is not JSON with comments. `line` and `column` count from 1."""

    def __init__(self, text: str, at: int, why: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {why}")


class Member(msgspec.Struct, frozen=True):
    """One `key: value` of an object. `start` is where its key begins."""

    key: str
    start: int
    value: Node


class Node(msgspec.Struct, frozen=True):
    """A value with its place. `members` for objects, `value` for what it means."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] | None = None

    def member(self, key: str) -> Member | None:
        """The one that counts: of equal keys, the last."""
        found = [member for member in self.members or () if member.key == key]
        return found[-1] if found else None


def parse(text: str) -> Node | None:
    """The whole document; None when it holds nothing but space and comments. Raises Malformed."""
    at = _skip(text, 0)
    if at == len(text):
        return None
    node = _value(text, at, 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise Malformed(text, end, "text after the end")
    return node


def read(text: str) -> Any:
    """What it means; None for an empty document. Raises Malformed."""
    node = parse(text)
    return None if node is None else node.value


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    end = found.end() if found is not None else at
    if text.startswith("/*", end):
        raise Malformed(text, end, "a comment that does not end")
    return end


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEEPEST:
        raise Malformed(text, at, "nested too deeply")
    mark = text[at : at + 1]
    if mark == "{":
        return _object(text, at, depth)
    if mark == "[":
        return _array(text, at, depth)
    if mark == '"':
        value, end = _string(text, at)
        return Node(at, end, value)
    found = _SCALAR.match(text, at)
    if found is None:
        raise Malformed(text, at, "a value is missing")
    try:
        return Node(at, found.end(), json.loads(found.group()))
    except ValueError:
        raise Malformed(text, at, f"{found.group()[:20]} is not a value") from None


def _string(text: str, at: int) -> tuple[str, int]:
    found = _STRING.match(text, at)
    if found is None:
        raise Malformed(text, at, "a string that does not end")
    try:
        return json.loads(found.group(), strict=False), found.end()
    except ValueError as error:
        raise Malformed(text, at, str(error)) from None


def _object(text: str, start: int, depth: int) -> Node:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise Malformed(text, at, "a key in quotes is missing")
        key, end = _string(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise Malformed(text, colon, "a colon is missing")
        node = _value(text, _skip(text, colon + 1), depth + 1)
        members.append(Member(key, at, node))
        at = _after_item(text, node.end, "}")
    return Node(start, at + 1, {member.key: member.value.value for member in members}, tuple(members))


def _array(text: str, start: int, depth: int) -> Node:
    items: list[Any] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        node = _value(text, at, depth + 1)
        items.append(node.value)
        at = _after_item(text, node.end, "]")
    return Node(start, at + 1, items)


def _after_item(text: str, at: int, close: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != close:
        raise Malformed(text, at, f"a comma or {close} is missing")
    return at


def comma_after(text: str, at: int) -> int | None:
    """Where the comma behind the value that ends at `at` stands, or None."""
    at = _skip(text, at)
    return at if text[at : at + 1] == "," else None


def content_end(text: str, start: int, close: int) -> int:
    """The end of what is not space, comments included, before the bracket at `close`; not before `start`."""
    return start + len(text[start:close].rstrip(" \t\r\n"))
