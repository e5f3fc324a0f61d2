"""Tokens of a text that is cut within its marks, so that none of them is read as one token. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from modeld.template.escape import SpecialTexts

#: Texts that vocabularies do not merge with what follows them, tried in this order.
_LEADS = ("\n", "\t", "|", "1")
#: Parts and characters tokenised in one call: a call takes up to a millisecond, and some tokenizers cut long texts.
_MOST_PARTS, _MOST_CHARACTERS = 256, 2048
#: Special tokens tried as a separator: where spaces are put before texts, none will do.
_TRIED = 8
Tokenize = Callable[[str], list[int]]


class Separator(NamedTuple):
    """A special token whose text parts what is beside it and takes nothing of it."""

    text: str
    token: int


def find_separator(tokenize: Tokenize, texts: Iterable[str]) -> Separator | None:
    """Find one of the special `texts`; None where the vocabulary puts spaces before texts. `tokenize` reads marks."""
    for text in islice(sorted(texts), _TRIED):
        tokens = tokenize(text)
        if len(tokens) == 1 and tokenize(f"a {text} b") == tokenize("a ") + tokens + tokenize(" b"):
            return Separator(text, tokens[0])
    return None


def cut(text: str, marks: SpecialTexts) -> list[str]:
    """The text in parts: each mark is cut behind its first character."""
    begins = [begin + 1 for begin in marks.begins(text)]
    return [text[begin:end] for begin, end in pairwise([0, *begins, len(text)])]


def in_parts(tokenize: Tokenize, parts: Sequence[str], separator: Separator) -> list[int]:
    """Tokens of parts that hold no mark, many in one call. `tokenize` reads marks."""
    tokens: list[int] = []
    for group in _groups(parts):
        tokens += [one for one in tokenize(separator.text.join(group)) if one != separator.token]
    return tokens


def _groups(parts: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for part in parts:
        if group and (len(group) >= _MOST_PARTS or size + len(part) > _MOST_CHARACTERS):
            yield group
            group, size = [], 0
        group.append(part)
        size += len(part)
    yield group


def one_by_one(tokenize: Tokenize, first: Tokenize, parts: Sequence[str]) -> list[int]:
    """Tokens of parts where spaces are put before texts: the first by `first`, the others as what goes on."""
    begin, *others = parts
    tokens = first(begin)
    known: dict[str, list[int]] = {}  # a text with very many cuts repeats itself
    for part in others:
        if part not in known:
            known[part] = continued(tokenize, part)
        tokens += known[part]
    return tokens


def continued(tokenize: Tokenize, text: str) -> list[int]:
    """Tokens of `text` without the space that some vocabularies put before whatever they are given."""
    for lead in _LEADS if text else ():
        known, tokens = tokenize(lead), tokenize(lead + text)
        if tokens[: len(known)] == known:
            return tokens[len(known) :]
    return tokenize(text)
