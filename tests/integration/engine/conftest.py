"""Workers and tiny models for the tests of the engine folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine_bench import Engine, Engines

from converted import share
from tiny_gguf import write_tiny_gguf

#: Tokens of a conversation. Real weights take milliseconds for each of them, the others next to nothing: there
#: a prompt has to be long for a cancel to meet it.
REAL_WINDOW, FAST_WINDOW = 512, 4096


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


@pytest.fixture(scope="module")
async def shared_engines(engine_root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engines]:
    """Workers for one file, for tests that need no cold one."""
    pool = Engines(tmp_path_factory.mktemp("engine"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELD_DATA_ROOT", str(engine_root))
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


@pytest.fixture(scope="session")
def converted_smollm2(smollm2: Path, smollm2_ir: Path, engine_root: Path) -> Path:
    """SmolLM2 for OpenVINO: its conversion is in the data root already."""
    share(smollm2_ir, engine_root)
    return smollm2


@pytest.fixture(
    scope="module",
    params=[
        "scripted",
        "llama",
        pytest.param("llama real", marks=pytest.mark.model),
        pytest.param("openvino real", marks=pytest.mark.model),
    ],
)
async def engine(request: pytest.FixtureRequest, shared_engines: Engines) -> AsyncIterator[Engine]:
    """Every engine under the one suite: a script, tiny weights, and real ones on both; each loaded once a file."""
    backend, _, real = request.param.partition(" ")
    if backend == "scripted":
        endless = {"pieces": ["one ", "two ", "three "], "endless": True}
        timing = {"token_s": 0.001, "prefill_token_s": 0.0002}
        loaded = await shared_engines.scripted(FAST_WINDOW, replies=[endless], **timing)
    else:
        weights = "converted_smollm2" if backend == "openvino" else "smollm2" if real else "tiny"
        window = REAL_WINDOW if real else FAST_WINDOW
        loaded = await shared_engines.load(backend, request.getfixturevalue(weights), num_ctx=window)
    yield loaded
    await loaded.host.close(2)  # the next one has the memory
