"""Tokenizes a rendered prompt: the template's special tokens are special, the same texts in contents are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from modeld.engine.continued import Separator, continued, cut, find_separator, in_parts, one_by_one
from modeld.engine.contract import Engine, ImageEncoder, SpecialTokens
from modeld.engine.images import PromptImage
from modeld.output.parser import format_marks
from modeld.template.content import ContentRenderer, Rendered
from modeld.template.escape import Span, SpecialTexts
from modeld.template.render import Template
from modeld.worker.template_limits import RenderGuard

#: Frames that mean a mark in every family, whether the template at hand writes it or not.
_FRAMES = (("<|", "|>"), ("<｜", "｜>"))


class PromptTokenizer:
    """Tokenises what one template renders for one vocabulary. Safe to use from two threads."""

    def __init__(self, engine: Engine, special: SpecialTokens, template: Template, guard: RenderGuard) -> None:
        self._engine = engine
        marks = format_marks(template.detected.output)
        structure = frozenset(_structure(engine, special, (template.source, *marks)))
        self._special = SpecialTexts(special.control | structure)
        self._cut = SpecialTexts(structure)
        framed = {mark for mark in marks if len(mark) > 2 and mark[0] in "<[" and mark[-1] in ">]"}
        escaped = SpecialTexts(self._special.texts | framed)
        self.contents = ContentRenderer(template, escaped, self._special, guard.limits)
        self._strips: dict[str, tuple[bool, bool]] = {}
        self._adds_space = _decoded(engine, "a") == b" a"
        self._separator: Separator | None = None
        if structure and not self._adds_space:
            self._separator = find_separator(self._with_special, special.control)

    def tokens(self, rendered: Rendered, encoder: ImageEncoder | None, images: Sequence[PromptImage]) -> list[int]:
        """All tokens of a prompt; no BOS is added. Raises as `ImageEncoder.ids`."""
        text = rendered.text
        marks = self._special.spans(rendered.disguised)
        left = list(images)

        def whole(part: str) -> list[int]:
            count = part.count(encoder.mark) if encoder is not None and left else 0
            if encoder is None or count == 0:
                return self._engine.tokenize(part, special=True)
            shown = left[:count]
            del left[:count]
            return encoder.ids(part, shown)

        if marks == self._special.spans(text):
            return whole(text)
        if encoder is not None and images:
            marks = sorted([*marks, *_mark_spans(text, encoder.mark)])
        tokens: list[int] = []
        for begin, end, disguised in _stretches(rendered, marks):
            tokens += self._between(text, begin, end, marks) if disguised else whole(text[begin:end])
        return tokens

    def ordinary(self, text: str) -> list[int]:
        """Tokens of a content by itself: no text in it is a special token."""
        return self._ordinary(text, self._without_special)

    def _between(self, text: str, begin: int, end: int, marks: Sequence[Span]) -> list[int]:
        """Tokens of words between two marks, as if none of the words were special."""
        before = next((text[slice(*one)] for one in marks if one[1] == begin and one[0] < begin), "")
        after = next((text[slice(*one)] for one in marks if one[0] == end), "")
        words = text[begin:end]
        if self._strips_of(before)[1]:
            words = words.lstrip()
        if self._strips_of(after)[0]:
            words = words.rstrip()
        begun = before and self._adds_space and not self._adds_space_behind(before)
        return self._ordinary(words, self._continued if begun else self._without_special)

    def _ordinary(self, text: str, first: Callable[[str], list[int]]) -> list[int]:
        """User-defined tokens are always read as one: a cut within each keeps it text."""
        if not any(True for _ in self._cut.begins(text)):
            return first(text)
        if self._separator is None:
            return one_by_one(self._without_special, first, cut(text, self._cut))
        return in_parts(self._with_special, cut(text, self._special), self._separator)

    def _with_special(self, text: str) -> list[int]:
        return self._engine.tokenize(text, special=True)

    def _without_special(self, text: str) -> list[int]:
        return self._engine.tokenize(text, special=False)

    def _continued(self, text: str) -> list[int]:
        return continued(self._without_special, text)

    def _strips_of(self, mark: str) -> tuple[bool, bool]:
        """Whether a mark takes the white space before it, and behind it."""
        if not self._special.spans(mark):
            return False, False
        known = self._strips.get(mark)
        if known is None:
            alone, before, behind = (self._engine.tokenize(one, special=True) for one in (mark, f" {mark}", f"{mark} "))
            known = self._strips[mark] = (before == alone, behind == alone)
        return known

    def _adds_space_behind(self, mark: str) -> bool:
        tokens = self._engine.tokenize(f"{mark}a", special=True)
        return b"".join(self._engine.piece(one, special=False) for one in tokens).endswith(b" a")


def _structure(engine: Engine, special: SpecialTokens, written: Iterable[str]) -> Iterator[str]:
    """User-defined tokens that structure a prompt: the template or the output format writes them, or they look so.

    Others are words to the model, as the HTML tags of Gemma are.
    """
    marks = (special.bos, special.eos, *special.end, special.fim_prefix, special.fim_suffix, special.fim_middle)
    named = {engine.piece(one, special=True).decode("utf-8", "replace") for one in marks if one is not None}
    sources = "\0".join(written)
    for text in special.user_defined:
        framed = any(text.startswith(begin) and text.endswith(end) for begin, end in _FRAMES)
        if framed or text in named or (len(text) > 2 and not text.strip().isalnum() and text in sources):
            yield text


def _stretches(rendered: Rendered, marks: Sequence[Span]) -> Iterator[tuple[int, int, bool]]:
    """The text in parts: the words between two marks where any are disguised (True), and all that is between those."""
    text, disguised = rendered
    begun = at = 0
    for begin, end in [*marks, (len(text), len(text))]:
        if text[at:begin] != disguised[at:begin]:
            if begun < at:
                yield begun, at, False
            yield at, begin, True
            begun = begin
        at = end
    if begun < len(text):
        yield begun, len(text), False


def _mark_spans(text: str, mark: str) -> Iterator[Span]:
    at = text.find(mark)
    while at >= 0:
        yield at, at + len(mark)
        at = text.find(mark, at + len(mark))


def _decoded(engine: Engine, text: str) -> bytes:
    return b"".join(engine.piece(token, special=False) for token in engine.tokenize(text, special=False))
