"""A bench for bridge tests: its folder is private and short enough for a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge_fakes import Bench
from bridge_world import World


@pytest.fixture
def bench(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    return Bench(short_tmp)


@pytest.fixture
def tiny(short_tmp: Path) -> str:
    """A folder with one tiny real model, as a MODELD_MODEL_FOLDERS value."""
    from tiny_gguf import write_tiny_gguf

    folder = short_tmp / "models"
    folder.mkdir()
    write_tiny_gguf(folder / "tiny.gguf")
    return str(folder)


@pytest.fixture
def world(short_tmp: Path) -> World:
    """For tests that spawn the bridge."""
    return World(short_tmp)
