"""Functionary's messages: `>>>` and a recipient on a line of its own, `all` for the user, else a tool. Pure."""

from __future__ import annotations

from modeld.output.calls.jsoncall import arguments
from modeld.output.emitter import Emitter
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

_LINE_END = Markers(("\n", ">>>"))


def recipient_call(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
    """Read the recipient; what follows `all` is left to the answer."""
    name, end = yield from reader.line(_LINE_END)
    if end == "\n" and name.strip() == "all":
        return
    if end != "\n" or name.strip() not in book:
        out.text(opener + name + (end or ""))
        return
    out.begin_call(name.strip())
    if (yield from arguments(reader, out)):
        out.end_call()
