"""Separates thinking from the answer where a server leaves thinking tags in the text. Pure."""

from __future__ import annotations

OPENING, CLOSING = "<think>", "</think>"


class ThinkSplitter:
    """Thinking stands at the very begin, in marks; the same marks anywhere behind are the answer's own words."""

    def __init__(self) -> None:
        self._state = "start"
        self._kept = ""

    def feed(self, text: str) -> tuple[str, str]:
        """(thinking, answer) of the next piece; the begin of a mark waits for the piece behind it."""
        text, self._kept = self._kept + text, ""
        thinking = ""
        if self._state == "start":
            begun = text.lstrip()
            if begun.startswith(OPENING):
                self._state, text = "thinking", begun[len(OPENING) :].lstrip("\n")
            elif OPENING.startswith(begun):
                self._kept = text
                return "", ""
            else:
                self._state = "answer"
        if self._state == "thinking":
            thinking, mark, text = text.partition(CLOSING)
            if not mark:
                held = next((size for size in range(len(CLOSING) - 1, 0, -1) if thinking.endswith(CLOSING[:size])), 0)
                self._kept = thinking[len(thinking) - held :]
                return thinking[: len(thinking) - held], ""
            self._state = "behind"
        if self._state == "behind":  # the blank lines between the two belong to neither
            text = text.lstrip("\n")
            self._state = "answer" if text else "behind"
        return thinking, text

    def end(self) -> tuple[str, str]:
        """What still waited: it was no mark."""
        kept, self._kept = self._kept, ""
        return (kept, "") if self._state == "thinking" else ("", kept)
