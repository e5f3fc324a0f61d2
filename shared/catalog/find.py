"""Which row of the library a person or a remembered pick means (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from shared.catalog import names
from shared.catalog.entry import ModelEntry

#: So many digits of a digest behind `@` name a content.
_LEAST_DIGITS = 6


def match(name: str, rows: Sequence[ModelEntry]) -> ModelEntry | None:
    """The row a name, a path or a digest means, else None: names first, then what models are called besides.

    A tag of Ollama's may be written as it is typed there. `base@digits` still finds a model whose mark is another by
    now, or gone with its namesake.
    """
    for wanted in _spellings(name):
        found = [row for row in rows if row.name == wanted] or [row for row in rows if wanted in row.aliases]
        if found:
            return found[0]
    base, _, digits = name.casefold().rpartition("@")
    for row in sorted(rows, key=lambda row: bool(row.adapters)):  # a path means the model without what a tag adds
        if name in (row.path, row.digest) or name in row.copies:
            return row
        content = row.digest.rpartition("-")[2].startswith(digits) and len(digits) >= _LEAST_DIGITS
        if base and content and base in (row.name.partition("@")[0], *row.aliases):
            return row
    return None


def _spellings(name: str) -> list[str]:
    found = [name.casefold()]
    if ":" in name or "/" in name:
        found += [names.base_name(name), names.base_name(name.removesuffix(":latest"))]
    return found
