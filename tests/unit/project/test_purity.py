"""A module whose docstring says that it is pure imports no loop, clock, disk, log, process or chance."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

from pure import impure_imports, pure_files, says_pure
from steps import ROOT

pytestmark = pytest.mark.unit

#: fewer than this many marked modules mean that the mark was lost, not that the decisions moved
FLOOR = 120


def test_no_pure_module_imports_what_acts() -> None:
    texts = {str(file): (ROOT / file).read_text(encoding="utf-8") for file in pure_files()}
    assert {file: found for file, text in texts.items() if (found := impure_imports(text))} == {}


def test_the_mark_is_kept() -> None:
    files = pure_files()
    assert len(files) >= FLOOR
    named = {file.name for file in files}
    assert {"machine.py", "rules.py", "queue.py", "reaper.py", "policy.py", "capability.py", "resolve.py"} <= named


def test_every_module_that_reads_outputs_carries_it() -> None:
    """The parsers see what a model wrote, byte by byte: none may do more than read."""
    reads = [file.relative_to(ROOT) for file in (ROOT / "modeld" / "output").rglob("*.py")]
    assert len(reads) > 20
    assert set(reads) <= set(pure_files())


@pytest.mark.parametrize(
    ("docstring", "marked"),
    [
        ("Who may own. Pure.", True),
        ("Who may own. Pure: no clock.", True),
        ("Who may own. Pure over a survey.", True),
        ("Who may own (pure).", True),
        ("Who may own (pure; no Jinja).", True),
        ("A purer way to own.", False),
        ("The pure machine and its driver.", False),
        ("", False),
    ],
)
def test_the_mark_is_a_sentence_or_stands_in_brackets(docstring: str, marked: bool) -> None:
    assert says_pure(f'"""{docstring}"""\nimport os\n') is marked


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os.path", ["os.path"]),
        ("import json, time", ["time"]),
        ("from asyncio import sleep", ["asyncio"]),
        ("from anyio.abc import TaskGroup", ["anyio.abc"]),
        ("def late():\n    import logging\n", ["logging"]),
        ("import json\nfrom shared import clock, times\nfrom . import os", []),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: list[str]) -> None:
    assert impure_imports(source) == found
