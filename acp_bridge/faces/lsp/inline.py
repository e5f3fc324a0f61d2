"""What a completion is asked with and what of it is shown: text around a cursor. Pure."""

from __future__ import annotations

import msgspec

#: Characters before and after the cursor that are sent at most. A prefix is cut only in steps, so that its head, and
#: with it what is warm, stays the same over many keystrokes.
PREFIX_MOST = 6000
SUFFIX_MOST = 1500
CUT_STEP = 2000
#: A completion is at most this many lines when it was not asked for by name.
LINES_TYPED = 6


class Around(msgspec.Struct, frozen=True):
    """The text before and after the cursor, as it is sent."""

    prefix: str
    suffix: str


def around(text: str, offset: int) -> Around:
    """The part of a document around `offset` (in characters), cut at lines."""
    prefix, suffix = text[:offset], text[offset:]
    if len(prefix) > PREFIX_MOST:
        over = -(-(len(prefix) - PREFIX_MOST) // CUT_STEP) * CUT_STEP
        prefix = prefix[over:]
        _, _, lines = prefix.partition("\n")
        prefix = lines or prefix
    if len(suffix) > SUFFIX_MOST:
        suffix = suffix[:SUFFIX_MOST]
        lines, found, _ = suffix.rpartition("\n")
        suffix = lines + found if found else suffix
    return Around(prefix, suffix)


def worth_asking(near: Around, *, asked: bool) -> bool:
    """Whether a typed cursor stands where a completion makes sense: not inside a word, not in an empty document."""
    if asked:
        return True
    following = near.suffix[:1]
    return bool(near.prefix.strip()) and not (following.isalnum() or following == "_")


def tidy(text: str, near: Around, *, asked: bool) -> str:
    """What of the model's text is shown: no repetition of what follows, whole lines, nothing that is only space."""
    lines = text.split("\n")
    if not asked:
        lines = lines[:LINES_TYPED]
        while len(lines) > 1 and not lines[-1].strip():
            lines.pop()
    shown = "\n".join(lines)
    rest_of_line = near.suffix.partition("\n")[0]
    if rest_of_line.strip() and "\n" not in shown:
        shown = _without_overlap(shown, rest_of_line)
    next_line = next((line for line in near.suffix.split("\n")[1:] if line.strip()), "")
    if next_line:
        shown = _before(shown, next_line)
    return shown if shown.strip() else ""


def _without_overlap(text: str, following: str) -> str:
    """`text` without an end that repeats the beginning of `following`."""
    for size in range(min(len(text), len(following)), 0, -1):
        if text.endswith(following[:size]):
            return text[:-size]
    return text


def _before(text: str, line: str) -> str:
    """`text` up to where it repeats a whole line that stands there already."""
    kept: list[str] = []
    for number, candidate in enumerate(text.split("\n")):
        if number and candidate.rstrip() == line.rstrip():
            break
        kept.append(candidate)
    return "\n".join(kept).rstrip("\n") if len(kept) > 1 else "\n".join(kept)
