"""The grammar of most models: thoughts between tags, tool calls in marked sections, the rest is the answer. Pure."""

from __future__ import annotations

from modeld.output.calls import style_of
from modeld.output.calls.section import json_calls
from modeld.output.calls.style import Style
from modeld.output.emitter import Emitter
from modeld.output.format import OutputFormat
from modeld.output.grammar.values import Opened
from modeld.output.markers import Markers
from modeld.output.prose import Prose
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

_QUOTES = "`\"'"


class _Tagged:
    """One output. The last character passed on decides whether a tag is quoted or begins a line."""

    def __init__(self, reader: Reader, out: Emitter, form: OutputFormat, book: ToolBook) -> None:
        self._reader = reader
        self._out = out
        self._book = book
        self._form = form
        self._styles = _styles(form) if book else ()
        thinks = form.reasoning == "tags"
        self._open = frozenset(form.think_open) if thinks else frozenset()
        self._close = frozenset(form.think_close) if thinks else frozenset()
        self._parsers = {opener: style.parse for style in reversed(self._styles) for opener in style.openers}
        self._noise = frozenset(form.noise).union(*(style.noise for style in self._styles)) - self._parsers.keys()
        self._answer = Markers((*self._open, *self._close, *self._parsers, *self._noise))
        self._thought = Markers((*self._open, *self._close, *self._parsers))
        self._last = ""
        self._prose = Prose()
        self._spoken_of = 0  # openers that were text: as many closers are

    def run(self) -> Steps[None]:
        """The whole output, from what the prompt left open."""
        form = self._form
        if form.opened and self._open:
            yield from self._reasoning()
        elif form.begun and self._styles:
            yield from self._call(self._styles[0].openers[0])
        elif any(style.bare for style in self._styles):
            yield from self._bare_calls()
        while True:
            marker = yield from self._reader.until(self._answer, self._say)
            if marker is None:
                return
            yield from self._marked(marker)

    def _marked(self, marker: str) -> Steps[None]:
        if (yield from self._quoted()) or self._is_spoken_of(marker):
            self._say(marker)
        elif marker in self._noise or marker in self._close:
            return
        elif marker in self._open:
            yield from self._reasoning()
        else:
            yield from self._call(marker)

    def _is_spoken_of(self, marker: str) -> bool:
        """Whether a tag of thoughts stands in the answer as any word does: in code, or in the middle of a line.

        A model thinks again at the begin of a line alone. A closer right behind a word is the end of thoughts that
        were never opened.
        """
        prose = self._prose
        if marker in self._open:
            text = prose.in_code or not (prose.at_line or not prose.begun)
            self._spoken_of += text
            return text
        if marker not in self._close or not prose.begun:
            return False
        text = prose.in_code or self._spoken_of > 0 or not (prose.at_line or prose.after_word)
        self._spoken_of = max(self._spoken_of - 1, 0)
        return text

    def _call(self, opener: str) -> Steps[None]:
        self._out.opened = Opened(self._reader.rest, opener=opener)
        yield from self._parsers[opener](self._reader, self._out, self._book, opener)
        self._reset()

    def _reasoning(self) -> Steps[None]:
        """Thoughts up to the closer that matches the opener; a tool call at the begin of a line ends them too."""
        out, depth = self._out, 1
        out.open_reasoning()
        self._last = ""
        while depth:
            marker = yield from self._reader.until(self._thought, self._think)
            if marker is None:
                return
            if (yield from self._quoted()):
                self._think(marker)
            elif marker in self._close:
                depth -= 1
                if depth:
                    self._think(marker)
                    out.inner_close()
            elif marker in self._open:
                if self._last.strip():  # an opener before any thought repeats that of the prompt
                    depth += 1
                    self._think(marker)
            elif self._last not in ("", "\n"):
                self._think(marker)
            else:
                out.close_reasoning()
                yield from self._call(marker)
                return
        out.close_reasoning()
        self._reset()

    def _reset(self) -> None:
        """Text behind a call or a thought is an answer of its own."""
        self._last, self._prose, self._spoken_of = "", Prose(), 0

    def _bare_calls(self) -> Steps[None]:
        """Some models write the call's JSON and nothing else."""
        spaces: list[str] = []
        yield from self._reader.skip_space(spaces.append)
        char = yield from self._reader.peek()
        if not char or char not in "{[":
            self._say("".join(spaces))
            return
        self._reader.record("".join(spaces))
        calls = yield from json_calls(self._reader, self._out, self._book, known_only=True)
        written = self._reader.recorded()
        if not calls:
            self._reader.unread(written)

    def _quoted(self) -> Steps[bool]:
        """Whether the tag just read stands between two equal quotes: then it is being talked about."""
        if not self._last or self._last not in _QUOTES:
            return False
        return (yield from self._reader.peek()) == self._last

    def _say(self, text: str) -> None:
        if text:
            self._last = text[-1]
            self._prose.add(text)
            self._out.text(text)

    def _think(self, text: str) -> None:
        if text.strip(" \t"):
            self._last = text.rstrip(" \t")[-1]
        self._out.reasoning(text)


def _styles(form: OutputFormat) -> tuple[Style, ...]:
    """The family's own notation, and ours, which we taught it or which many were trained on anyway."""
    own, ours = style_of(form.tools), style_of("generic")
    if own is ours:
        return (ours,)
    return (own, ours if form.described else ours._replace(bare=False))


def tagged(reader: Reader, out: Emitter, form: OutputFormat, book: ToolBook) -> Steps[None]:
    """Run over the whole output."""
    return _Tagged(reader, out, form, book).run()
