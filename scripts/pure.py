"""The modules that call themselves pure: a "Pure" sentence or "(pure)" in the docstring is the mark, and the only one.

Standard library only: `make coverage` and the tests read this before anything is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from steps import ROOT

PACKAGES = ("acp_bridge", "modeld", "shared")
#: what a decision must get as a value instead: a loop, a clock, a disk, a log, a process, chance
IMPURE = frozenset({
    "anyio", "asyncio", "logging", "os", "random", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time",
})  # fmt: skip
_MARK = re.compile(r"\bPure\b|\(pure\b")


def pure_files(root: Path = ROOT) -> list[Path]:
    """The pure modules below `root`, relative to it, sorted."""
    files = (file for package in PACKAGES for file in (root / package).rglob("*.py"))
    return sorted(file.relative_to(root) for file in files if says_pure(file.read_text(encoding="utf-8")))


def says_pure(text: str) -> bool:
    """Whether the docstring of a module with this source marks it."""
    if not _MARK.search(text):  # most modules: parsing is what takes the time
        return False
    return bool(_MARK.search(ast.get_docstring(ast.parse(text)) or ""))


def impure_imports(text: str) -> list[str]:
    """What a module with this source imports itself, anywhere in it, and must not where it is pure."""
    names = _imported(ast.parse(text))
    return sorted({name for name in names if name.partition(".")[0] in IMPURE})


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
