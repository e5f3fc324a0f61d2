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


def test_a_run_of_some_parts_leaves_the_rows_of_the_others() -> None:
    top = "# Title\n\n- note {}\n\n| what | day |\n| --- | --- |\n"
    old = top.format(1) + "| a | 1 |\n| b | 1 |\n| c | 1 |"
    new = top.format(2) + "| b | 2 |\n| d | 2 |"
    assert page.kept(old, new) == top.format(2) + "| a | 1 |\n| b | 2 |\n| c | 1 |\n| d | 2 |"
    assert page.kept("", new) == new


def test_a_whole_run_leaves_no_row_that_is_measured_no_more(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    for whole, rows in ((True, "| a | 1 |\n| b | 1 |"), (False, "| b | 2 |"), (True, "| b | 3 |")):
        page.write(path, "# Title\n\n| what | day |\n| --- | --- |\n" + rows, {}, whole=whole)
        assert ("| a |" in path.read_text(encoding="utf-8")) is (rows != "| b | 3 |")
