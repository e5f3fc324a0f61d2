"""Messages one after the other, each with a header: gpt-oss's channels, and recipients alone (Muse). Pure.

`<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>...` or
`to=self<|message|>...<|eom|><|start|>assistant to=user<|message|>...`: there a call's body is written in tags.
"""

from __future__ import annotations

import re

from modeld.output.calls import style_of
from modeld.output.calls.jsoncall import arguments
from modeld.output.emitter import Emitter
from modeld.output.format import OutputFormat
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>", "<|eom|>", "<|eot|>")
_HEADER = Markers((_MESSAGE, "<|end|>", "<|return|>", "<|call|>"))
_BODY = Markers(_ENDS)
_BEGIN = Markers(("<|channel|>", "<|start|>", _MESSAGE))
_RECIPIENT = re.compile(r"to=(?:functions[.])?([^\s<]+)")
_CHANNEL = re.compile(r"<[|]channel[|]>\s*(\w+)")
#: literals that the grammar reads (the rest of the vocabulary's marks is dropped before it)
MARKS = (*_ENDS, _MESSAGE, "<|constrain|>")


def harmony(reader: Reader, out: Emitter, form: OutputFormat, book: ToolBook) -> Steps[None]:
    """Run over the whole output. Text outside any message is the answer (a model that forgot its channels)."""
    yield from reader.skip_space()
    head = ""
    if (yield from reader.accept("to=")):  # the recipient may stand before the channel
        name, marker = yield from reader.line(_BEGIN)
        head = f"to={name}"
    else:
        marker = yield from reader.until(_BEGIN, out.text)
    while marker is not None:
        header, end = ("", marker) if marker == _MESSAGE else (yield from reader.line(_HEADER))
        if end is None:
            return
        if end == _MESSAGE:
            marker = yield from _message(reader, out, book, form, head + marker + header)
            head = ""
            if marker in ("<|start|>", "<|channel|>", None):
                continue
        marker = yield from reader.until(_BEGIN, out.text)


def _message(reader: Reader, out: Emitter, book: ToolBook, form: OutputFormat, header: str) -> Steps[str | None]:
    recipient = _RECIPIENT.search(header)
    found = _CHANNEL.search(header)
    channel = found.group(1) if found else "final"
    if form.tools == "muse":
        channel = {"self": "analysis", "user": "final"}.get(recipient.group(1) if recipient else "user", "call")
        if channel == "call":
            yield from _in_tags(reader, out, book)
            return (yield from reader.until(_BODY, _drop))
    elif recipient and book:
        out.begin_call(recipient.group(1))
        if (yield from arguments(reader, out)):
            out.end_call()
        return (yield from reader.until(_BODY, _drop))
    if channel == "analysis":
        out.open_reasoning()
        marker = yield from reader.until(_BODY, out.reasoning)
        if marker is not None:
            out.close_reasoning()
        return marker
    return (yield from reader.until(_BODY, out.text))


def _in_tags(reader: Reader, out: Emitter, book: ToolBook) -> Steps[None]:
    style = style_of("muse")
    yield from reader.skip_space()
    for opener in style.openers:
        if (yield from reader.accept(opener)):
            yield from style.parse(reader, out, book, opener)


def _drop(text: str) -> None:
    """White space and leftovers behind a call's arguments."""
