"""The page of measurements keeps what a run did not measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import page

pytestmark = pytest.mark.unit


def test_a_run_replaces_what_it_measured_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    page.write(path, "# Title\n\n| a | 1 |", {"Beside others": "| b | 1 |\n"})
    page.write(path, None, {"Beside others": "| b | 2 |"})
    assert path.read_text() == "# Title\n\n| a | 1 |\n\n## Beside others\n\n| b | 2 |\n"
    page.write(path, "# Title\n\n| a | 3 |\n", {})
    assert path.read_text() == "# Title\n\n| a | 3 |\n\n## Beside others\n\n| b | 2 |\n"


def test_the_page_in_the_docs_comes_apart_and_together_again() -> None:
    text = (Path(__file__).parents[3] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page.joined(*page.parts(text)) == text
