"""What the pages for a successor name is there: files, tests, and the constants that versions stand in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[3]
PAGES = ("architecture.md", "design/turn.md", "design/how-to-add.md", "design/versions.md")
_NAMED = re.compile(
    r"(?:(?<=`)|(?<=pytest )|(?<= ))((?:acp_bridge|modeld|shared|tests|scripts|docs|editors)/[\w./-]*[\w/])(?=[`\s])"
)


def missing(text: str) -> list[str]:
    """The paths in a page that the repository lacks."""
    return [name for name in _NAMED.findall(text) if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert _NAMED.search(text)
    assert missing(text) == []


def test_a_file_that_has_gone_is_found() -> None:
    assert missing("see `modeld/gone.py` and\npytest tests/unit/gone tests/unit\n") == [
        "modeld/gone.py",
        "tests/unit/gone",
    ]


def test_every_version_stands_where_the_page_says() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/design/versions.md").read_text(encoding="utf-8").splitlines()]
    found = [
        (names, where.strip(" `")) for _, names, where, *_ in (row for row in rows if len(row) > 4) if "/" in where
    ]
    assert len(found) == 7
    for names, where in found:
        code = (ROOT / where).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^{name}\b", code, re.MULTILINE), (name, where)
