"""Workers and tiny models for the tests of the engine folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine_bench import Engine, Engines, Opener

from tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def engine_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root for all engines: what OpenVINO makes of a file is made once, and not in the user's own root."""
    return tmp_path_factory.mktemp("engine-root")


@pytest.fixture
async def engines(tmp_path: Path, engine_root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engines]:
    """Workers for one test."""
    monkeypatch.setenv("MODELD_DATA_ROOT", str(engine_root))
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


@pytest.fixture(
    params=[
        "scripted",
        "llama",
        pytest.param("llama real", marks=pytest.mark.model),
        pytest.param("openvino real", marks=pytest.mark.model),
    ]
)
async def opened(request: pytest.FixtureRequest, engines: Engines) -> Opener:
    """Every engine under the one suite: a script, tiny weights, and real ones on both."""
    backend, _, real = request.param.partition(" ")

    async def open_engine(num_ctx: int = 2048) -> Engine:
        if backend == "scripted":
            endless = {"pieces": ["one ", "two ", "three "], "endless": True}
            return await engines.scripted(num_ctx, replies=[endless], token_s=0.001, prefill_token_s=0.0002)
        path: Path = request.getfixturevalue("smollm2" if real else "tiny")
        return await engines.load(backend, path, num_ctx=num_ctx)

    return open_engine
