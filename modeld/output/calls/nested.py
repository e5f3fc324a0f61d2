"""Calls as nested elements, each tag behind a mark: objects and arrays are elements themselves (MiniMax M3). Pure."""

from __future__ import annotations

import json
from typing import Any

from modeld.output.calls.tagcall import value_of
from modeld.output.emitter import Emitter
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook
from shared.text.nesting import DEEPEST, loads_json

#: Stands before every tag, so that a value may hold tags of its own.
MARK = "]<]minimax[>["
_INVOKE = '<invoke name="'
_ITEM = "item"
_NEXT = Markers((MARK,))
_TAG_END = Markers((">",))
_NAME_END = Markers(('">',))


def nested_calls(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
    """Parse one section of calls, or one call without it."""
    reader.record(opener)
    begun = opener.endswith(_INVOKE)
    if begun:
        yield from _call(reader, out, book)
    else:
        while True:
            yield from reader.skip_space()
            if not (yield from reader.accept(MARK + _INVOKE)):
                break
            begun = True
            if not (yield from _call(reader, out, book)):
                break
    written = reader.recorded()
    if not begun:
        out.text(written)


def _call(reader: Reader, out: Emitter, book: ToolBook) -> Steps[bool]:
    name, end = yield from reader.line(_NAME_END)
    if end is None or not name.strip():
        return False
    out.begin_call(name.strip())
    first = True
    while True:
        _, mark = yield from reader.line(_NEXT)
        tag, end = yield from reader.line(_TAG_END)
        if mark is None or end is None:
            return False
        if tag.startswith("</"):
            break
        key = tag.removeprefix("<")
        value = yield from _element(reader, key, 0)
        if value is None:
            return False
        if isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False) if book.wants_text(name, key) else value_of(value)
        else:
            text = json.dumps(_plain(value), ensure_ascii=False)
        out.arguments(("{" if first else ", ") + json.dumps(key, ensure_ascii=False) + f": {text}")
        first = False
    out.arguments("{}" if first else "}")
    return out.end_call()


def _element(reader: Reader, key: str, depth: int) -> Steps[Any]:
    """What stands up to the closing tag: a text, or [(key, value), ...]; None where it never ends."""
    children: list[tuple[str, Any]] = []
    while True:
        text, mark = yield from reader.line(_NEXT)
        tag, end = yield from reader.line(_TAG_END)
        if mark is None or end is None or depth > DEEPEST:
            return None
        if tag.startswith("</"):
            return children or text
        child = tag.removeprefix("<")
        value = yield from _element(reader, child, depth + 1)
        if value is None:
            return None
        children.append((child, value))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return loads_json(value)
        except ValueError:
            return value
    if all(key == _ITEM for key, _ in value):
        return [_plain(one) for _, one in value]
    return {key: _plain(one) for key, one in value}
