"""The commands that the docs tell people to type: every line behind `$ ` in a `console` block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Typed(NamedTuple):
    """One command line, and the page that has it."""

    page: str
    line: str


def pages() -> list[Path]:
    """Every page that people read."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    found += [path for path in (ROOT / "editors").rglob("README.md") if "node_modules" not in path.parts]
    return sorted(path for path in found if "_build" not in path.parts)


def typed() -> Iterator[Typed]:
    """All of them, page by page."""
    for path in pages():
        for block in _BLOCK.findall(path.read_text(encoding="utf-8")):
            for line in block.splitlines():
                if line.startswith("$ "):
                    yield Typed(str(path.relative_to(ROOT)), line[2:])
