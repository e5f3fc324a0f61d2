"""A marked section of JSON calls: opener, one object or an array or several in a row, closer. Pure."""

from __future__ import annotations

from modeld.output.calls.jsoncall import call_object
from modeld.output.calls.style import Parse
from modeld.output.emitter import Emitter
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook


def json_section(*closers: str) -> Parse:
    """The notation of one family. A section that is no call at all is shown as it was written."""

    def parse(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
        reader.record(opener)
        calls = yield from json_calls(reader, out, book)
        for closer in closers:
            yield from reader.skip_space()
            if (yield from reader.accept(closer)):
                break
        written = reader.recorded()
        if not calls:
            out.text(written)

    return parse


def json_calls(reader: Reader, out: Emitter, book: ToolBook, *, known_only: bool = False) -> Steps[int]:
    """Objects one after the other, in an array or not, parted by commas or semicolons; how many were calls."""
    calls = 0
    while True:
        yield from reader.skip_space()
        char = yield from reader.peek()
        if char == "{":
            outcome = yield from call_object(reader, out, book, known_only=known_only)
            if outcome == "text":
                return calls
            calls += 1
            if outcome == "cut":
                return calls
        elif char in ("[", "]", ",", ";", "}") and char and not (char == "}" and calls == 0):
            yield from reader.accept(char)
        else:
            return calls
