"""The growing text of one output, read by generator grammars that pause where more is needed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from modeld.output.markers import Markers

T = TypeVar("T")
#: How often a grammar may look at one place without taking anything or leaving. The longest run of literals that one
#: tries in turn is below ten, so this many means that it goes round in a circle.
MOST_LOOKS = 64
#: As much as anybody asks of what has come and is not read yet: the begin of a call, up to its arguments.
REST = 512
#: Takes text that is certain.
Sink = Callable[[str], None]
#: A part of a grammar: pauses where it needs more text, returns its result.
Steps = Generator[None, None, T]


class Scanner(Protocol):
    """Consumes text for `Reader.take`."""

    done: bool

    def scan(self, text: str, at: int) -> int:
        """Look at `text[at:]`; the position up to which it is consumed. Sets `done` at its own end."""
        ...


class NoProgress(Exception):
    """A grammar neither takes text nor leaves: a defect of that grammar, which would go on for ever."""


class Reader:
    """A cursor over text that arrives in pieces. Consumed text is dropped at each `feed`.

    Each method is one look at the text. What takes nothing may be repeated `MOST_LOOKS` times at one place; then it
    raises NoProgress, so that every loop of a grammar takes at least one character or ends. `work` counts looks and
    characters copied: it is what an output costs, whatever the machine.

    While recording, what is consumed is kept, so that text which turns out to be no call can be shown.
    """

    __slots__ = ("_at", "_idle", "_record", "_text", "_unread", "ended", "work")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._record: list[str] | None = None
        self._idle = 0
        self._unread = False
        self.work = 0
        self.ended = False

    def feed(self, text: str) -> None:
        """More text has come."""
        self._text = self._text[self._at :] + text
        self._at = 0
        self.work += len(self._text)

    def end(self) -> None:
        """No more text will come: waiting steps decide with what there is."""
        self.ended = True

    @property
    def rest(self) -> str:
        """What has come and is not consumed: the first `REST` characters of it."""
        rest = self._text[self._at : self._at + REST]
        self.work += len(rest)
        return rest

    def record(self, first: str = "") -> None:
        """Begin to keep what is consumed, after `first`."""
        self._record = [first]

    def recorded(self) -> str:
        """What was consumed since `record`; ends the recording."""
        record, self._record = self._record, None
        return "".join(record or ())

    def unread(self, text: str) -> None:
        """Put text in front of the cursor: it was looked at and is something else. Once for an output, else
        NoProgress.
        """
        if self._unread:
            raise NoProgress
        self._unread = True
        self._text = text + self._text[self._at :]
        self._at = 0
        self.work += len(self._text)

    def until(self, markers: Markers, sink: Sink) -> Steps[str | None]:
        """Pass text to `sink` up to the next marker, which is consumed and returned; None at the end."""
        end = yield from self._up_to(markers, sink)
        return None if end is None else self._consume(end)

    def line(self, markers: Markers) -> Steps[tuple[str, str | None]]:
        """The text up to the next marker, held until it comes, and that marker."""
        parts: list[str] = []
        marker = yield from self.until(markers, parts.append)
        return "".join(parts), marker

    def before(self, markers: Markers) -> Steps[tuple[str, str | None]]:
        """As `line`, with the marker left where it is."""
        parts: list[str] = []
        end = yield from self._up_to(markers, parts.append)
        return "".join(parts), None if end is None else self._text[self._at : end]

    def skip_space(self, sink: Sink | None = None) -> Steps[None]:
        """Pass white space to `sink` (or drop it) up to the next other character, or the end."""
        self._look()
        while True:
            at, size = self._at, len(self._text)
            while at < size and self._text[at].isspace():
                at += 1
            self._pass(at, sink)
            if at < size or self.ended:
                return
            yield

    def peek(self) -> Steps[str]:
        """The next character, not consumed; "" at the end."""
        self._look()
        while self._at == len(self._text) and not self.ended:
            yield
        return self._text[self._at : self._at + 1]

    def accept(self, literal: str) -> Steps[bool]:
        """Consume `literal` if it comes next."""
        self._look()
        while True:
            rest = self._text[self._at : self._at + len(literal)]
            if rest == literal:
                self._consume(self._at + len(literal))
                return True
            if self.ended or not literal.startswith(rest):
                return False
            yield

    def take(self, scanner: Scanner) -> Steps[bool]:
        """Let `scanner` consume until it is done; False if the output ended first."""
        self._look()
        while not scanner.done:
            if self._at < len(self._text):
                self._look()
                self._consume(scanner.scan(self._text, self._at))
            elif self.ended:
                return False
            else:
                yield
        return True

    def _up_to(self, markers: Markers, sink: Sink) -> Steps[int | None]:
        """Pass text to `sink` up to the next marker; where that ends, None at the end of the output."""
        self._look()
        while True:
            found = markers.search(self._text, self._at, self.ended)
            if found is not None:
                self._pass(found[0], sink)
                return found[1]
            self._pass(len(self._text) if self.ended else markers.partial(self._text, self._at), sink)
            if self.ended:
                return None
            yield

    def _look(self) -> None:
        self.work += 1
        self._idle += 1
        if self._idle > MOST_LOOKS:
            raise NoProgress

    def _consume(self, to: int) -> str:
        text = self._text[self._at : to]
        if text:
            self._idle = 0
            self.work += len(text)
        self._at = to
        if self._record is not None:
            self._record.append(text)
        return text

    def _pass(self, to: int, sink: Sink | None) -> None:
        if to > self._at:
            text = self._consume(to)
            if sink is not None:
                sink(text)
