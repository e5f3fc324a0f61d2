"""End to end: the installed commands, real weights, real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.home import Home
from clients.npm import node_modules


@pytest.fixture(scope="session")
def modules() -> Path:
    """The installed JavaScript clients."""
    return node_modules()


@pytest.fixture(scope="session")
def models(smollm2: Path, gemma3: Path) -> str:
    """The folder with both test models, as a MODELD_MODEL_FOLDERS value."""
    assert smollm2.parent == gemma3.parent
    return str(smollm2.parent)


@pytest.fixture
def home(models: str) -> Iterator[Home]:
    """A fresh user with both test models in a known folder; no daemon runs.

    A small model may repeat itself until its turn is full: some hundred tokens are enough to be seen at work.
    """
    with Home(MODELD_MODEL_FOLDERS=models, MODELD_TURN_TOKENS="600") as fresh:
        yield fresh


@pytest.fixture
def llama(home: Home) -> Home:
    """A fresh user whose modeld serves the llama engine."""
    home.start("llama")
    return home


@pytest.fixture(params=[pytest.param("llama", marks=pytest.mark.llama), "openvino"])
def engine(request: pytest.FixtureRequest, home: Home) -> Home:
    """A fresh user with a running modeld, once for each engine."""
    home.start(request.param)
    return home
