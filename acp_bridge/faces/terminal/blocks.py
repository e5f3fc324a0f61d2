"""Markdown that is still being written: which of its blocks are whole, and can be shown for good."""

from __future__ import annotations

from markdown_it import MarkdownIt

#: As a model means it: HTML is text, so that none of an answer is lost.
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def split(text: str) -> list[str]:
    """Its blocks in order: more text can only change the last one. Joined they are `text`."""
    starts = [token.map[0] for token in PARSER.parse(text) if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.split("\n")
    places = [sum(len(line) + 1 for line in lines[:start]) for start in starts[1:]]
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]
