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


def write(page: Path, head: str | None, sections: Mapping[str, str]) -> None:
    """Put what was measured in the place of what stood there; the rest stays."""
    old_head, old_sections = parts(page.read_text(encoding="utf-8")) if page.exists() else ("", {})
    page.write_text(joined((head or old_head).strip(), {**old_sections, **sections}), encoding="utf-8")
