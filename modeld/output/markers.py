"""Sets of literal strings that are looked for across chunk borders. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Markers:
    """Finds the leftmost, then longest, of several literals in a text that is still growing."""

    __slots__ = ("_longest", "_pattern", "_prefixes", "literals")

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted({one for one in literals if one}, key=lambda one: (-len(one), one)))
        self._pattern = re.compile("|".join(map(re.escape, self.literals))) if self.literals else None
        self._prefixes = frozenset(one[:size] for one in self.literals for size in range(1, len(one)))
        self._longest = max(map(len, self.literals), default=0)

    def search(self, text: str, start: int, ended: bool) -> tuple[int, int] | None:
        """Begin and end of the match, or None. A match that more text could make longer or earlier waits.

        `ended`: no more text will come.
        """
        found = self._pattern.search(text, start) if self._pattern else None
        if found is None:
            return None
        if not ended and self.partial(text, start) <= found.start():
            return None
        return found.span()

    def partial(self, text: str, start: int) -> int:
        """Where a literal might be beginning at the end of `text`; `len(text)` if nowhere."""
        size = len(text)
        for at in range(max(start, size - self._longest + 1), size):
            if text[at:] in self._prefixes:
                return at
        return size
