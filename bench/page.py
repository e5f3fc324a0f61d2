"""docs/performance.md: budgets at its head, other tables in sections. A run replaces what it measured, no more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def parts(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and each section's text by its heading. Pure."""
    pieces = _HEADING.split(text)
    return pieces[0].strip(), {name: body.strip() for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def joined(head: str, sections: Mapping[str, str]) -> str:
    """The page of these parts. Pure."""
    return "\n\n".join([head, *(f"## {name}\n\n{body.strip()}" for name, body in sections.items())]) + "\n"


def kept(old: str, new: str) -> str:
    """The new text with those rows of the old one that were not measured again, each in its old place. Pure."""
    before, after = _rows(old), _rows(new)
    rows = [after.get(what, line) for what, line in before.items()]
    rows += [line for what, line in after.items() if what not in before]
    frame = [line for line in new.splitlines() if line not in after.values()]
    return "\n".join([*frame, *rows])


def _rows(text: str) -> dict[str, str]:
    """The rows of its table by what they tell."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0]: line for line in lines[2:]}  # behind the names of the columns and their rule


def write(page: Path, head: str | None, sections: Mapping[str, str], *, whole: bool = True) -> None:
    """Put what was measured in the place of what stood there; the rest stays.

    `whole`: the head is of all parts, so that a row it has not is one that is measured no more.
    """
    old_head, old_sections = parts(page.read_text(encoding="utf-8")) if page.exists() else ("", {})
    if head is not None and not whole:
        head = kept(old_head, head.strip())
    page.write_text(joined((head or old_head).strip(), {**old_sections, **sections}), encoding="utf-8")
