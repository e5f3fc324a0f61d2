"""Calls whose name stands before their JSON arguments, parted by marks. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from modeld.output.calls.jsoncall import arguments
from modeld.output.calls.section import json_calls
from modeld.output.calls.style import Parse
from modeld.output.emitter import Emitter
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

#: `functions.get_weather:0`, as some models number their calls
_NUMBERED = re.compile(r"(?:functions[.])?(.+?)(?::\d+)?\Z", re.DOTALL)
_FENCE = "```"


class Marks(NamedTuple):
    """`separators` end the name (an `id_mark` before them ends it too, then comes an id); `closer` ends the call.

    `named_first`: what stands before the separator is the name; else it is a kind ("function") and the
    name is the line after it.
    """

    separators: tuple[str, ...]
    closer: str = ""
    id_mark: str = ""
    name_mark: str = ""


def named_call(marks: Marks) -> Parse:
    """The notation of one family."""
    ends = Markers((*marks.separators, *filter(None, (marks.closer, marks.id_mark, marks.name_mark))))

    def parse(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
        reader.record(opener)
        yield from reader.skip_space()
        if (yield from reader.peek()) in ("[", "{") and "[ARGS]" in marks.separators:
            begun = (yield from json_calls(reader, out, book)) > 0
        else:
            begun = yield from _one(reader, out, marks, ends)
        if marks.closer and begun:
            yield from reader.skip_space()
            yield from reader.accept(marks.closer)
        written = reader.recorded()
        if not begun:
            out.text(written)

    return parse


def _one(reader: Reader, out: Emitter, marks: Marks, ends: Markers) -> Steps[bool]:
    head, mark = yield from reader.line(ends)
    call_id = ""
    while mark is not None and mark in (marks.id_mark, marks.name_mark):
        following, end = yield from reader.line(ends)
        if mark == marks.id_mark:
            call_id = following.strip()
        else:
            call_id, head = head.strip(), following
        mark = end
    if mark is None or mark == marks.closer:
        return False
    name = _plain(head)
    yield from reader.skip_space()
    if (yield from reader.peek()) not in ("{", ""):
        line, _ = yield from reader.line(_LINE_END)
        name = _plain(line) if not line.lstrip().startswith(_FENCE) else name
    yield from _skip_fence(reader)
    if not name:
        return False
    out.begin_call(name, call_id)
    if (yield from arguments(reader, out)):
        out.end_call()
        yield from _skip_fence(reader)
    return True


_LINE_END = Markers(("\n",))


def _skip_fence(reader: Reader) -> Steps[None]:
    """A Markdown fence around the arguments, with or without a language."""
    yield from reader.skip_space()
    if (yield from reader.accept(_FENCE)):
        yield from reader.accept("json")
        yield from reader.skip_space()


def _plain(name: str) -> str:
    found = _NUMBERED.match(name.strip())
    return found.group(1) if found else ""
