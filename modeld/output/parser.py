"""From the bytes of a decode to typed events: the face of this folder. Pure."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from modeld.output.calls import style_of
from modeld.output.emitter import Emitter
from modeld.output.format import OutputFormat
from modeld.output.grammar.values import Opened
from modeld.output.harmony import MARKS as HARMONY_MARKS
from modeld.output.harmony import harmony
from modeld.output.reader import Reader
from modeld.output.stops import StopFilter
from modeld.output.tagged import tagged
from modeld.output.tools import ToolBook
from modeld.output.utf8 import Utf8Decoder
from shared.protocol.api import Event, ToolCall

_ID_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 9  # Mistral's templates refuse any other length


def new_call_id() -> str:
    """Nine letters and digits, as the strictest templates want them."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


def format_marks(form: OutputFormat) -> tuple[str, ...]:
    """Every literal that the grammar of a format reads."""
    if form.reasoning == "channels":
        return HARMONY_MARKS
    style, ours = style_of(form.tools), style_of("generic")
    calls = (*style.openers, *style.noise, *style.inner, *ours.openers, *ours.noise)
    return (*form.think_open, *form.think_close, *form.noise, *calls)


class OutputParser:
    """One output. `tools` are the turn's tools in chat-completion shape: without any, no call is looked for.

    Joined deltas never depend on how the bytes were split. `new_id` names the calls.
    """

    def __init__(
        self,
        format: OutputFormat,  # noqa: A002 - the word of the face
        stops: Iterable[str] = (),
        tools: Sequence[dict[str, Any]] = (),
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._utf8 = Utf8Decoder()
        stops = tuple(stops)
        self._stops = StopFilter(stops)
        self._reader = Reader()
        self._out = Emitter(new_id)
        grammar = harmony if format.reasoning == "channels" else tagged
        self._steps: Generator[None, None, None] | None = grammar(self._reader, self._out, format, ToolBook(tools))
        self._stop_strings = frozenset(stops)
        self._marks = format_marks(format)
        self._advance()

    def take_opened(self) -> Opened | None:
        """A tool call that began in what was fed last; reported once."""
        opened = self._out.opened
        if opened is not None:
            self._out.opened = None
        return opened

    @property
    def stopped(self) -> bool:
        """A stop string was met: everything after it is dropped, decoding may end."""
        return self._stops.stopped

    @property
    def work(self) -> int:
        """What the output has cost so far, in looks and copied characters: it grows with the length alone."""
        return self._reader.work

    def feed(self, data: bytes, *, control: bool = False) -> list[Event]:
        """Bytes of the next token or tokens; the events that are certain by now.

        `control`: these are a control token's text, which is shown to the grammar if it reads such a mark
        and to nobody else.
        """
        if control and not self._meaningful(data.decode("utf-8", "replace")):
            return []
        return self._take(self._stops.feed(self._utf8.feed(data)))

    def finish(self, *, cut: bool = False) -> tuple[list[Event], list[ToolCall]]:
        """The last events and all complete tool calls. `cut`: the output did not end by itself."""
        text = self._stops.feed(self._utf8.finish()) + self._stops.finish()
        events = self._take(text)
        self._reader.end()
        self._advance()
        if not cut:
            self._out.end_unfinished()
            self._out.answer_with_thoughts()
        self._out.end_text()
        return events + self._out.take(), self._out.calls

    def _meaningful(self, mark: str) -> bool:
        return mark in self._stop_strings or any(mark in one for one in self._marks)

    def _take(self, text: str) -> list[Event]:
        if not text:
            return []
        self._reader.feed(text)
        self._advance()
        return self._out.take()

    def _advance(self) -> None:
        if self._steps is None:
            return
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
