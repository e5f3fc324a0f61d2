"""Calls written as objects of one member: `[{"get_weather": {"city": "Paris"}}]`. Pure."""

from __future__ import annotations

from modeld.output.calls.jsoncall import arguments
from modeld.output.calls.style import Parse
from modeld.output.emitter import Emitter
from modeld.output.jsontext import string
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook


def keyed_calls(closer: str) -> Parse:
    """The notation with its closing mark."""

    def parse(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
        del book
        reader.record(opener)
        begun = False
        while True:
            yield from reader.skip_space()
            char = yield from reader.peek()
            if char and char in "[{,}]":
                yield from reader.accept(char)
                continue
            if char != '"':
                break
            name = yield from string(reader)
            yield from reader.skip_space()
            if not name or not (yield from reader.accept(":")):
                break
            begun = True
            out.begin_call(name)
            if not (yield from arguments(reader, out)):
                break
            out.end_call()
        yield from reader.accept(closer)
        written = reader.recorded()
        if not begun:
            out.text(written)

    return parse
