"""Workers and tiny models for the tests of the engine folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine_bench import Engines

from tiny_gguf import write_tiny_gguf


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    """Workers for one test."""
    pool = Engines(tmp_path)
    yield pool
    await pool.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain attention, loads in milliseconds."""
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_window(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sliding window of 32 tokens: its memory cannot be cut at will."""
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "window.gguf", shape="gemma3")


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heavy enough that a long prompt takes seconds."""
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "slow.gguf", width=512, layers=8)
