"""What the tests that run inside Windows share; loaded there as a plugin in place of tests/conftest.py."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# no time limit for one example: wine's first calls are slow; fewer of them, since Linux tries the rest
settings.register_profile("windows", deadline=None, max_examples=30, database=None)
settings.load_profile("windows")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """On Windows asyncio means the proactor loop, the only one with pipes."""
    return "asyncio"


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A private folder."""
    folder = Path(tempfile.mkdtemp(prefix="md-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
