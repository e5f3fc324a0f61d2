"""Drafts what an answer says next from what its conversation holds already. Pure, and cheap enough for every token.

An answer that copies (an edited file, a quoted passage) repeats long runs of its context. Its last few tokens are
looked up there; what followed them the last time is the draft. An engine evaluates several drafted tokens in one
batch and keeps those that it samples anyway, so a draft changes what an answer costs and never what it says.

A wrong draft costs more than none. So drafts are made in silence first: only when some were right in a row are they
proposed, more of them each time, and a wrong one makes that row longer. All of this counts tokens and no time: the same
conversation is drafted alike on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Tokens in a row that must be found again: fewer are found everywhere.
GRAM = 4
#: The most tokens drafted at once.
LONGEST = 8
#: Drafts that must be right in a row before the next is proposed: at first, and at most.
TRUST = 4
MOST_TRUST = 64


class Lookup:
    """The drafts of one answer: `accept` each token, then ask for a `draft` before the next evaluation."""

    __slots__ = ("_at", "_positions", "_proposed", "_right", "_tokens", "_trust")

    def __init__(self, prompt: Sequence[int]) -> None:
        """Cheap: the prompt is read at the first `accept`, so that the first token of an answer waits for nothing."""
        self._tokens = list(prompt)
        #: Behind each run of GRAM tokens: the place of what followed it the last time.
        self._positions: dict[tuple[int, ...], int] | None = None
        self._at = 0
        self._right = 0
        self._trust = TRUST
        self._proposed = 0

    def accept(self, token: int) -> bool:
        """The next token of the answer; whether it was proposed by the last draft."""
        tokens, positions = self._tokens, self._positions
        if positions is None:
            positions = self._positions = _positions(tokens)
            self._at = positions.get(tuple(tokens[-GRAM:]), 0)
        known = bool(self._at) and tokens[self._at] == token
        proposed = self._proposed > 0
        if known:
            self._at += 1
            self._right += 1
            if proposed:
                self._proposed -= 1
                if not self._proposed:
                    self._trust = max(self._trust // 2, TRUST)
        else:
            self._at = self._right = self._proposed = 0
            if proposed:
                self._trust = min(2 * self._trust, MOST_TRUST)
        if len(tokens) >= GRAM:
            positions[tuple(tokens[-GRAM:])] = len(tokens)
        tokens.append(token)
        if not known:
            self._at = positions.get(tuple(tokens[-GRAM:]), 0)
        return known and proposed

    def draft(self, most: int) -> list[int]:
        """What may follow, `most` tokens at most; [] where it is not known well enough."""
        earned = self._right - self._trust
        if earned < 0:
            return []
        draft = self._tokens[self._at : self._at + min(earned + 2, LONGEST, most)]
        self._proposed = len(draft)
        return draft


def _positions(tokens: list[int]) -> dict[tuple[int, ...], int]:
    """Built at native speed: some milliseconds for a conversation of ten thousand tokens."""
    shifted = (tokens[shift:] for shift in range(GRAM))
    return dict(zip(zip(*shifted, strict=False), range(GRAM, len(tokens)), strict=False))
