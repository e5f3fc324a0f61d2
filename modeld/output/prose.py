"""Where an answer stands in its own text: at the begin of a line, in a sentence, in code. Pure.

Markdown as far as it decides whether a tag is a mark of the model or something that the answer speaks of.
"""

from __future__ import annotations

import re

#: Line ends, runs of what opens code, and what stands between.
_PART = re.compile(r"\n|`+|~+|[^\n`~]+")
_FENCE = 3
#: So far from the margin a line is code by itself.
_INDENT = 4
_SENTENCE_ENDS = ".!?…。！？"


class Prose:
    """The answer so far, read when somebody asks: each character once."""

    def __init__(self) -> None:
        self._unread: list[str] = []
        self._fence = ""  # the run that opened it
        self._inline = 0  # the length of the run that opened code in this line
        self._line = ""  # its blanks, up to anything else
        self._begun_line = False
        self._last = ""
        self.begun = False

    def add(self, text: str) -> None:
        """More of the answer."""
        self._unread.append(text)

    @property
    def at_line(self) -> bool:
        """Whether the next character begins a line of ordinary text, or the answer itself."""
        self._read()
        return not (self._begun_line or self._fence) and len(self._line.expandtabs(_INDENT)) < _INDENT

    @property
    def in_code(self) -> bool:
        """Whether the next character stands in a fence, in code of this line or in an indented block."""
        self._read()
        indented = not self._begun_line and len(self._line.expandtabs(_INDENT)) >= _INDENT
        return bool(self._fence or self._inline) or (indented and self.begun)

    @property
    def after_word(self) -> bool:
        """Whether a word or the end of a sentence stands right before."""
        self._read()
        return self._last.isalnum() or (self._last != "" and self._last in _SENTENCE_ENDS)

    def _read(self) -> None:
        text, self._unread = "".join(self._unread), []
        for found in _PART.finditer(text):
            part = found.group()
            self._last = part[-1]
            self._take(part)

    def _take(self, part: str) -> None:
        if part == "\n":
            self._line, self._begun_line, self._inline = "", False, 0
        elif not self._begun_line and part[0] in "`~" and len(part) >= _FENCE:
            self._fenced(part)
            self._begun_line = self.begun = True
        elif part[0] == "`" and not self._fence:
            self._inline = 0 if self._inline == len(part) else self._inline or len(part)
            self._begun_line = self.begun = True
        elif part.isspace():
            self._line += "" if self._begun_line else part
        else:
            self._begun_line = self.begun = True

    def _fenced(self, run: str) -> None:
        if not self._fence:
            self._fence = run
        elif run[0] == self._fence[0] and len(run) >= len(self._fence):
            self._fence = ""
