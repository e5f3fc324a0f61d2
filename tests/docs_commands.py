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


_INLINE = re.compile(r"`((?:modeld|acp-bridge) [^`\n]+)`")
#: What stands for something in a sentence, and a word that may stand there.
_STANDS_FOR = (
    (re.compile(r"\{(?:backend|other)\}"), "llama"),
    (re.compile(r"\{name\}|EDITOR"), "zed"),
    (re.compile(r"\{verb\}|<verb>"), "start"),
    (re.compile(r"SHELL"), "bash"),
    (re.compile(r"\{port\}"), "8000"),
    (re.compile(r"\b(?:NAME|FILE|FOLDER|SOURCE|MODEL)\b|\.\.\."), "x"),
    (re.compile(r"\[([^\]]*)\]"), r"\1"),
    (re.compile(r"\b(\w+)(?:\|\w+)+"), r"\1"),
)


def mentioned() -> Iterator[Typed]:
    """Every command that a sentence names, in the docs and in what the programs themselves say."""
    sources = [path for package in ("acp_bridge", "modeld", "shared") for path in (ROOT / package).rglob("*.py")]
    for path in [*pages(), *sorted(sources)]:
        for line in _INLINE.findall(path.read_text(encoding="utf-8")):
            for pattern, word in _STANDS_FOR:
                line = pattern.sub(word, line)  # noqa: PLW2901  one after the other
            yield Typed(str(path.relative_to(ROOT)), line)
