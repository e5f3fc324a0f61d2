"""Gemma's calls: `call:name{key:<|"|>text<|"|>,other:1}`, values in marks of their own instead of quotes. Pure."""

from __future__ import annotations

import json

from modeld.output.calls.style import Parse
from modeld.output.emitter import Emitter
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook
from shared.text.nesting import DEEPEST, loads_json

_NAME_END = Markers(("{",))
_KEY_END = Markers((":",))


def gemma_call(quote: str, closer: str) -> Parse:
    """The notation with one pair of marks."""
    quoted = Markers((quote,))
    scalar = Markers((",", "}", "]"))

    def parse(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
        del book
        reader.record(opener)
        yield from reader.skip_space()
        yield from reader.accept("call:")
        name, mark = yield from reader.line(_NAME_END)
        if mark is None or not name.strip():
            out.text(reader.recorded())
            return
        out.begin_call(name.strip())
        if (yield from _members(reader, out, 0)):
            out.end_call()
        yield from reader.skip_space()
        yield from reader.accept(closer)
        reader.recorded()

    def _members(reader: Reader, out: Emitter, depth: int) -> Steps[bool]:
        """Up to the closing brace; the opening one is consumed."""
        out.arguments("{")
        first = True
        while True:
            yield from reader.skip_space()
            if (yield from reader.accept("}")):
                out.arguments("}")
                return True
            if (yield from reader.accept(",")):
                continue
            key, mark = yield from reader.line(_KEY_END)
            if mark is None:
                return False
            key = key.replace(quote, "").strip().strip('"')
            out.arguments(("" if first else ", ") + json.dumps(key, ensure_ascii=False) + ": ")
            first = False
            if not (yield from _value(reader, out, depth + 1)):
                return False

    def _items(reader: Reader, out: Emitter, depth: int) -> Steps[bool]:
        out.arguments("[")
        first = True
        while True:
            yield from reader.skip_space()
            if (yield from reader.accept("]")):
                out.arguments("]")
                return True
            if (yield from reader.accept(",")):
                continue
            if (yield from reader.peek()) in ("", "}", ":"):
                return False
            out.arguments("" if first else ", ")
            first = False
            if not (yield from _value(reader, out, depth + 1)):
                return False

    def _value(reader: Reader, out: Emitter, depth: int) -> Steps[bool]:
        yield from reader.skip_space()
        if depth > DEEPEST:
            return False
        if (yield from reader.accept(quote)):
            out.arguments('"')
            end = yield from reader.until(quoted, lambda text: out.arguments(_inside(text)))
            out.arguments('"')
            return end is not None
        if (yield from reader.accept("{")):
            return (yield from _members(reader, out, depth))
        if (yield from reader.accept("[")):
            return (yield from _items(reader, out, depth))
        return (yield from _scalar(reader, out, scalar))

    return parse


def _scalar(reader: Reader, out: Emitter, ends: Markers) -> Steps[bool]:
    """A number or a word, which ends before the next comma or bracket."""
    text, mark = yield from reader.before(ends)
    if mark is None:
        return False
    text = {"None": "null", "True": "true", "False": "false"}.get(text.strip(), text.strip())
    try:
        out.arguments(json.dumps(loads_json(text), ensure_ascii=False))
    except ValueError:
        out.arguments(json.dumps(text, ensure_ascii=False))
    return True


def _inside(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
