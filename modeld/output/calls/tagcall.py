"""Calls written as tags: a function and its parameters, each value between two tags. Pure."""

from __future__ import annotations

import ast
import json
from typing import NamedTuple

from modeld.output.calls.jsoncall import arguments
from modeld.output.calls.section import json_calls
from modeld.output.calls.style import Parse
from modeld.output.emitter import Emitter
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook
from shared.text.nesting import loads_json


class Tags(NamedTuple):
    """`<call>` may hold several functions. A name or key is what stands before the next `end` mark.

    `key_open ... key_end` and `value_open ... value_close` frame one parameter (`value_open` may be "").
    `typed`: how a key's tag ends, and the attribute in it that says that the value is text. `cdata`: text may stand in
    CDATA.
    `bare_name`: the function's name follows the section's opener without a tag; `name_end` may end it.
    """

    section_close: str
    name_open: str
    name_end: str
    name_close: str
    key_open: str
    key_end: str
    value_close: str
    value_open: str = ""
    typed: tuple[str, str] | None = None
    bare_name: bool = False
    cdata: bool = False


def tag_call(tags: Tags) -> Parse:
    """The notation of one family. Where the tags hold JSON instead, that is read too."""
    return _TagCall(tags).parse


class _TagCall:
    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._names = Markers(filter(None, (tags.name_open, tags.section_close)))
        self._name_ends = Markers(filter(None, (tags.name_end, tags.section_close)))
        self._keys = Markers(filter(None, (tags.key_open, tags.name_close, tags.section_close)))
        self._key_ends = Markers((tags.key_end,))
        self._value_ends = Markers((tags.value_close,))
        self._tag_ends = Markers(tags.typed[:1] if tags.typed else ())
        self._bare_ends = Markers(filter(None, (tags.key_open, tags.section_close, tags.name_end, "\n")))

    def parse(self, reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
        reader.record(opener)
        begun = yield from self._section(reader, out, book, opener)
        written = reader.recorded()
        if not begun:
            out.text(written)

    def _section(self, reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[bool]:
        tags = self._tags
        if opener == tags.name_open:
            return (yield from self._function(reader, out, book)) is not None
        yield from reader.skip_space()
        if (yield from reader.peek()) in ("{", "["):
            calls = yield from json_calls(reader, out, book)
            yield from reader.skip_space()
            yield from reader.accept(tags.section_close)
            return calls > 0
        if tags.bare_name:
            return (yield from self._function(reader, out, book)) is not None
        begun = False
        while True:
            stray: list[str] = []
            mark = yield from reader.until(self._names, stray.append)
            if mark is None or mark == tags.section_close:
                return begun
            if (yield from self._function(reader, out, book)) is None:
                return begun
            begun = True

    def _function(self, reader: Reader, out: Emitter, book: ToolBook) -> Steps[str | None]:
        """One function; None if it has no name or was never begun."""
        tags = self._tags
        if tags.bare_name:
            name, mark = yield from reader.line(self._bare_ends)
        else:
            name, mark = yield from reader.line(self._name_ends)
        name = name.strip().strip('"')
        if mark is None or not name:
            return None
        out.begin_call(name)
        if not tags.bare_name:
            yield from reader.skip_space()
            if (yield from reader.peek()) == "{":
                if (yield from arguments(reader, out)):
                    out.end_call()
                    yield from self._close(reader)
                return name
        complete = yield from self._parameters(reader, out, book, name, mark)
        if complete:
            out.end_call()
        return name

    def _close(self, reader: Reader) -> Steps[None]:
        yield from reader.skip_space()
        if self._tags.name_close:
            yield from reader.accept(self._tags.name_close)

    def _parameters(self, reader: Reader, out: Emitter, book: ToolBook, name: str, mark: str) -> Steps[bool]:
        tags, first = self._tags, True
        while True:
            if mark != tags.key_open:
                if mark == tags.section_close and tags.bare_name:
                    break
                found = yield from reader.until(self._keys, _drop)
                if found is None:
                    return False
                if found != tags.key_open:
                    break
            key, end = yield from reader.line(self._key_ends)
            if end is None:
                return False
            as_text = book.wants_text(name, key.strip().strip('"'))
            if tags.typed:
                typed, end = yield from reader.line(self._tag_ends)
                as_text = tags.typed[1] in typed
            out.arguments(("{" if first else ", ") + json.dumps(key.strip().strip('"'), ensure_ascii=False) + ": ")
            first, mark = False, ""
            if not (yield from self._value(reader, out, as_text)):
                return False
        out.arguments("{}" if first else "}")
        return True

    def _value(self, reader: Reader, out: Emitter, as_text: bool) -> Steps[bool]:
        if self._tags.value_open:
            yield from reader.skip_space()
            yield from reader.accept(self._tags.value_open)
        ends = self._value_ends
        if self._tags.cdata and (yield from reader.accept(_CDATA)):
            ends, as_text = Markers(("]]>" + self._tags.value_close,)), True
        if not as_text:
            text, end = yield from reader.line(ends)
            if end is not None:
                out.arguments(value_of(text))
            return end is not None
        value = _TextValue(out)
        out.arguments('"')
        if (yield from reader.until(ends, value.feed)) is None:
            return False
        out.arguments('"')
        return True


_CDATA = "<![CDATA["


class _TextValue:
    """A value as the inside of a JSON string, without the line breaks that only frame it."""

    def __init__(self, out: Emitter) -> None:
        self._out = out
        self._begun = False
        self._break = ""

    def feed(self, text: str) -> None:
        text = self._break + text
        self._break = ""
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\n")
        if text.endswith("\n"):
            text, self._break = text[:-1], "\n"
        self._out.arguments(json.dumps(text, ensure_ascii=False)[1:-1])


def value_of(text: str) -> str:
    """JSON of a value that is no text: JSON, a Python literal, else the text itself."""
    text = text.strip()
    try:
        return json.dumps(loads_json(text), ensure_ascii=False)
    except ValueError:
        pass
    try:
        return json.dumps(ast.literal_eval(text), ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return json.dumps(text, ensure_ascii=False)


def _drop(text: str) -> None:
    """White space between two tags."""
