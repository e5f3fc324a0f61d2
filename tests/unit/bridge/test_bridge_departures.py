"""A killed daemon is missed once for all bridges."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_bridge.daemon.departures import Departures

pytestmark = pytest.mark.unit


def test_who_comes_later_counts_from_the_first_note(tmp_path: Path) -> None:
    assert Departures(tmp_path / "gone").noted(["a"], 100.0) == {"a": 0.0}
    assert Departures(tmp_path / "gone").noted(["a", "b"], 130.0) == {"a": 30.0, "b": 0.0}
    assert Departures(tmp_path / "gone").noted(["b"], 140.0) == {"b": 10.0}
    later = Departures(tmp_path / "gone").noted(["a", "b"], 150.0)
    assert later == {"a": 0.0, "b": 20.0}, "what was swept is forgotten"


def test_a_clock_that_was_set_back_starts_over(tmp_path: Path) -> None:
    assert Departures(tmp_path / "gone").noted(["a"], 100.0) == {"a": 0.0}
    assert Departures(tmp_path / "gone").noted(["a"], 50.0) == {"a": 0.0}
    assert Departures(tmp_path / "gone").noted(["a"], 60.0) == {"a": 10.0}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": "x"}', b"\xff"])
def test_a_damaged_note_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gone").write_bytes(content)
    assert Departures(tmp_path / "gone").noted(["a"], 100.0) == {"a": 0.0}


def test_without_a_place_for_it_each_counts_for_itself(tmp_path: Path) -> None:
    assert Departures(tmp_path / "missing" / "gone").noted(["a"], 100.0) == {"a": 0.0}
    assert Departures(tmp_path / "missing" / "gone").noted(["a"], 110.0) == {"a": 0.0}
