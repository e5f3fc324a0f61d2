"""A bench for bridge tests: its folder is private and short enough for a socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from bridge_fakes import Bench


@pytest.fixture
def bench(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    return Bench(short_tmp)
