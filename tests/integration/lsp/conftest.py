"""A fresh user for each test of the LSP face."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leaks import end_processes_of
from lsp_world import World


@pytest.fixture
def world(short_tmp: Path) -> Iterator[World]:
    """Afterwards no process that lives on its data root may be left."""
    yield World(short_tmp)
    left = end_processes_of(short_tmp / "data")
    assert not left, f"processes left behind on this test's data root: {left}"
