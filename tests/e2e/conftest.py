"""End to end: the installed commands, real weights, real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.home import Home
from clients.npm import node_modules
from converted import share


@pytest.fixture(scope="session")
def modules() -> Path:
    """The installed JavaScript clients."""
    return node_modules()


@pytest.fixture(scope="session")
def models(smollm2: Path, gemma3: Path) -> str:
    """The folder with both test models, as a MODELD_MODEL_FOLDERS value."""
    assert smollm2.parent == gemma3.parent
    return str(smollm2.parent)


def user(models: str, converted: Path) -> Home:
    """A fresh user with both test models in a known folder, one of them converted for OpenVINO already.

    A small model may repeat itself until its turn is full: some hundred tokens are enough to be seen at work. One
    engine thread: other tests run beside, and threads that wait for each other starve first (the newcomer's and
    `acp-bridge chat`'s tests keep the default).
    """
    fresh = Home(MODELD_MODEL_FOLDERS=models, MODELD_TURN_TOKENS="600", MODELD_THREADS="1")
    share(converted, fresh.root)
    return fresh


@pytest.fixture
def home(models: str, smollm2_ir: Path) -> Iterator[Home]:
    """A user of this test alone; no daemon runs."""
    with user(models, smollm2_ir) as fresh:
        yield fresh


@pytest.fixture
def llama(home: Home) -> Home:
    """A user of this test alone, whose modeld serves the llama engine."""
    home.start("llama")
    return home


@pytest.fixture(scope="module", params=[pytest.param("llama", marks=pytest.mark.llama), "openvino"])
def engine(request: pytest.FixtureRequest, models: str, smollm2_ir: Path) -> Iterator[Home]:
    """A user with a running modeld, once for each engine: the tests of a file follow each other as editors do."""
    with user(models, smollm2_ir) as shared:
        shared.start(request.param)
        yield shared


@pytest.fixture(scope="module")
def openvino(models: str, smollm2_ir: Path) -> Iterator[Home]:
    """As `engine`, for the tests of a file that need one engine alone."""
    with user(models, smollm2_ir) as shared:
        shared.start("openvino")
        yield shared
