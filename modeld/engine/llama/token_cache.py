"""Ids of a conversation that goes on: what was tokenised before is not tokenised again.

A vocabulary cuts a text at its marks first, so that what stands before a mark has the same ids whatever follows it.
The marks that end a message are such places, and every message but the newest ends with one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from modeld.engine.prefix import common_prefix

#: Conversations remembered; shorter texts than this are tokenised at once (bytes of memory are some 12 a character).
MOST = 4
LEAST_CHARACTERS = 2000
Tokenize = Callable[[str], list[int]]


class SentTokens(NamedTuple):
    """One text and its ids, of which `mark` is a message's end wherever its text stands."""

    text: str
    tokens: list[int]
    mark: int


class TokenCache:
    """Used by two threads. `marks`: texts of the vocabulary's end-of-turn tokens by their ids."""

    def __init__(self, tokenize: Tokenize, marks: Mapping[int, str]) -> None:
        self._tokenize = tokenize
        self._marks = {token: text for token, text in marks.items() if text}
        self._sent: list[SentTokens] = []
        self._lock = threading.Lock()

    def tokens(self, text: str) -> list[int]:
        """Ids of `text`, as tokenising it whole gives them."""
        if len(text) < LEAST_CHARACTERS:
            return self._tokenize(text)
        with self._lock:
            sent = list(self._sent)
        found = max((self._known(one, text) for one in sent), key=lambda known: known[0], default=(0, []))
        at, before = found
        tokens = [*before, *self._tokenize(text[at:])]
        self._remember(text, tokens)
        return tokens

    def _known(self, sent: SentTokens, text: str) -> tuple[int, Sequence[int]]:
        """Where in `text` the last mark stands up to which all was sent, and the ids before it."""
        mark = self._marks[sent.mark]
        at = sent.text.rfind(mark, 0, common_prefix(sent.text, text))
        if at <= 0:
            return 0, []
        place = -1
        for _ in range(sent.text.count(mark, 0, at) + 1):
            place = sent.tokens.index(sent.mark, place + 1)
        return at, sent.tokens[:place]

    def _remember(self, text: str, tokens: list[int]) -> None:
        for mark, written in self._marks.items():
            count = tokens.count(mark)
            if count and count == text.count(written):
                break
        else:
            return  # it has no end that can be distinguished from its text
        with self._lock:
            older = [one for one in self._sent if not text.startswith(one.text)]
            self._sent = [*older[-(MOST - 1) :], SentTokens(text, tokens, mark)]
