"""`make test` runs few scenarios in the real editor; the rest have a command of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
FOLDER = Path(__file__).parents[2] / "e2e" / "vscode"
#: More of them would make the test command red for an editor's own timing.
MOST = 10


def test_few_scenarios_of_the_real_editor_are_part_of_make_test() -> None:
    marked = [
        name
        for file in sorted(FOLDER.glob("test_*.py"))
        for name in re.findall(
            r"@pytest.mark.core_editor\n(?:@[^\n]*\n)*def (test_\w+)", file.read_text(encoding="utf-8")
        )
    ]
    assert 5 <= len(marked) <= MOST
    assert len(set(marked)) == len(marked)
