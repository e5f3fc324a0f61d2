"""Tokens of words that stand behind others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Texts that vocabularies do not merge with what follows them, tried in this order.
_LEADS = ("\n", "\t", "|", "1")
Tokenize = Callable[[str], list[int]]


def continued(tokenize: Tokenize, text: str) -> list[int]:
    """Tokens of `text` without the space that some vocabularies put before whatever they are given."""
    for lead in _LEADS if text else ():
        known, tokens = tokenize(lead), tokenize(lead + text)
        if tokens[: len(known)] == known:
            return tokens[len(known) :]
    return tokenize(text)


def in_parts(tokenize: Tokenize, first: Tokenize, parts: Sequence[str], *, adds_space: bool) -> list[int]:
    """Tokens of a text that is cut into `parts`: the first by `first`, the others as what goes on."""
    begin, *others = parts
    tokens = first(begin)
    for part in others:
        tokens += continued(tokenize, part) if adds_space else tokenize(part)
    return tokens
