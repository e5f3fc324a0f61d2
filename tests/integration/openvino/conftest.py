"""One converted SmolLM2 for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openvino_bench import Bench, Direct, request_for

from modeld.engine.contract import AbortFlag
from modeld.engine.openvino.engine import OpenVinoEngine


@pytest.fixture(scope="session")
def converted_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root that keeps the conversion for all tests."""
    return tmp_path_factory.mktemp("openvino-root")


@pytest.fixture
def root(converted_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared data root, in force."""
    monkeypatch.setenv("MODELD_DATA_ROOT", str(converted_root))
    return converted_root


@pytest.fixture(scope="session")
def bench(smollm2: Path, converted_root: Path) -> Iterator[Bench]:
    """SmolLM2 on our engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELD_DATA_ROOT", str(converted_root))
        abort = AbortFlag()
        engine = OpenVinoEngine(abort)
        engine.prepare()
        loaded = engine.load(request_for(smollm2), lambda done, of: None)
    yield Bench(engine, loaded, abort)
    engine.close()


@pytest.fixture(scope="session")
def direct(bench: Bench, converted_root: Path) -> Direct:
    """The same model without us."""
    (folder,) = (converted_root / "cache" / "openvino").iterdir()
    return Direct(bench.engine, folder)
