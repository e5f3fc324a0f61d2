"""Contents that hold the text of a special token, disguised while a template renders them. Pure.

A chat template joins its own marks and the words of others into one text, and a tokenizer cannot tell who wrote a mark.
So one character of each special token's text in a content is replaced by a private one (a stand-in) before the
template sees it: lengths stay, trimming, slicing, repeating and JSON treat it as any other character, and no template
takes a content for one of its own marks. Afterwards a mark that is not disguised is the template's.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from shared.errors import TemplateFailed

Span = tuple[int, int]
#: JSON escapes quotes and backslashes, templates trim white space: a stand-in for these would not come out alike.
_UNFIT = re.compile(r"[\s\"'\\]*")
_ESCAPE = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")
#: Characters; the longest special tokens in use have some 40.
LONGEST = 128
#: Groups within groups of a pattern: Python's own limit is some 100, vocabularies in use need 10.
_DEEPEST = 30
#: Words by which templates find their way in calls and schemas: not disguised but for a mark within.
_SCHEMA = frozenset(
    (
        *("type", "function", "name", "description", "parameters", "arguments", "properties"),
        *("required", "items", "enum", "id", "string", "number", "integer"),
        *("boolean", "object", "array", "null", "anyOf", "oneOf", "allOf"),
        *("default", "title", "additionalProperties", "text"),
    )
)
#: Unicode's private characters: no text means anything by them.
_PRIVATE = ((0xE000, 0xF900), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE))


class SpecialTexts:
    """The texts of special tokens, found at once however many there are (Gemma 3 has 6,250)."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Left out are texts longer than any token's, and of nothing but white space, quotes and backslashes."""
        self.texts = frozenset(text for text in texts if len(text) <= LONGEST and _UNFIT.sub("", text, count=1))
        pattern = _pattern(sorted(self.texts)) if self.texts else ""
        self._exact = re.compile(pattern) if pattern else None
        self._any_case = re.compile(pattern, re.IGNORECASE) if pattern else None

    def spans(self, text: str) -> list[Span]:
        """Where they stand, from left to right; the longest where several begin, and none overlaps another."""
        return [found.span() for found in self._exact.finditer(text)] if self._exact is not None else []

    def begins(self, text: str, *, any_case: bool = False) -> Iterator[int]:
        """Where each begins, so that a cut behind that character, or another character there, leaves none whole."""
        pattern = self._any_case if any_case else self._exact
        found = pattern.search(text) if pattern is not None else None
        while pattern is not None and found is not None:
            yield found.start()
            found = pattern.search(text, found.start() + 1)


def _pattern(texts: Sequence[str], depth: int = 0) -> str:
    """For exactly these texts, given in order: the longest first, and what begins alike looked at once."""
    if depth > _DEEPEST:
        return f"(?:{'|'.join(map(re.escape, reversed(texts)))})"
    shared = texts[0]
    while not texts[-1].startswith(shared):
        shared = shared[:-1]
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for text in texts:
        if len(text) > len(shared):
            rests[text[len(shared)]].append(text[len(shared) + 1 :])
    firsts: defaultdict[str, list[str]] = defaultdict(list)
    for character, more in rests.items():
        firsts[_pattern(more, depth + 1)].append(re.escape(character))
    branches = [f"[{''.join(found)}]{more}" if len(found) > 1 else found[0] + more for more, found in firsts.items()]
    ends_here = "?" if branches and shared in texts else ""
    return re.escape(shared) + (f"(?:{'|'.join(branches)}){ends_here}" if branches else "")


class Borders:
    """Contents that could complete one of `texts` together with what a template writes next to them."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded = [text.casefold() for text in texts]
        self._longest = max(map(len, folded), default=0)
        self._begins = tuple({text[:cut] for text in folded for cut in range(1, len(text))})
        self._ends = tuple({text[cut:] for text in folded for cut in range(1, len(text))})
        self._middles = "\0".join(text[1:-1] for text in folded)

    def touched_by(self, content: str) -> bool:
        """Whether it begins with an end of one, ends with a begin of one, or could stand within one."""
        if content in _SCHEMA:
            return False
        first, last = content.lstrip()[: self._longest].casefold(), content.rstrip()[-self._longest :].casefold()
        if first.startswith(self._ends) or last.endswith(self._begins):
            return True
        words = first.rstrip()
        return 0 < len(words) < self._longest and words in self._middles


class Escaper:
    """Disguises contents for one rendering, and takes the disguise off again. Called with any JSON value."""

    def __init__(self, texts: SpecialTexts, taken: Callable[[], str], borders: Borders | None = None) -> None:
        """`taken`: a text of all characters that no stand-in may be. `borders`: contents that touch them are disguised
        at their ends too.
        """
        self._texts = texts
        self._borders = borders
        self._taken = taken
        self._free: Iterator[str] | None = None
        self._stand_ins: dict[str, str] = {}
        #: All keys and texts that it was given, and what stands for them.
        self.contents: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        """The same value, keys and texts disguised. Raises TemplateFailed where no character is left for it."""
        if isinstance(value, str):
            known = self.contents.get(value)
            if known is None:
                known = self.contents[value] = self._text(value)
            return known
        if isinstance(value, dict):
            return {self(key): self(one) for key, one in value.items()}
        return [self(one) for one in value] if isinstance(value, (list, tuple)) else value

    def _text(self, text: str) -> str:
        positions = [_fit(text, begin) for begin in self._texts.begins(text, any_case=True)]
        if self._borders is not None and self._borders.touched_by(text):
            positions += _outermost(text)
        if not positions:
            return text
        characters = list(text)
        for position in positions:
            characters[position] = self._stand_in(text[position])
        return "".join(characters)

    def _stand_in(self, character: str) -> str:
        known = self._stand_ins.get(character)
        if known is None:
            if self._free is None:
                self._free = _unused(self._taken())
            known = next(self._free, None)
            if known is None:
                raise TemplateFailed(message="the conversation uses every private character of Unicode", index=None)
            self._stand_ins[character] = known
        return known

    def plain(self, rendered: str) -> str:
        """What was rendered, with stand-ins as themselves where the template wrote them as JSON or Python escapes."""
        for stand_in in self._stand_ins.values():
            for form in _escaped_forms(stand_in):
                rendered = rendered.replace(form, stand_in)
        return rendered

    def restore(self, plain: str) -> str:
        """`plain` without disguise, of the same length."""
        for character, stand_in in self._stand_ins.items():
            plain = plain.replace(stand_in, character)
        return plain


def _fit(text: str, start: int) -> int:
    """The first place from `start` on whose character may be replaced; the length where there is none."""
    found = _UNFIT.match(text, start)
    return found.end() if found else start


def _outermost(text: str) -> list[int]:
    last = len(text) - 1
    return [position for position in (_fit(text, 0), last - _fit(text[::-1], 0)) if 0 <= position <= last]


def _unused(taken: str) -> Iterator[str]:
    """Private characters that are not in `taken`, nor any escape that could be read as one."""
    characters, escapes = set(taken), set(_ESCAPE.findall(taken))
    for character in map(chr, chain.from_iterable(range(*bounds) for bounds in _PRIVATE)):
        begins = {_ESCAPE.findall(form)[0] for form in _escaped_forms(character)}
        if character not in characters and escapes.isdisjoint(begins):
            yield character


def _escaped_forms(character: str) -> set[str]:
    """A private character as JSON in ASCII has it, and as Python shows it."""
    return {json.dumps(character)[1:-1], repr(character)[1:-1]}
