"""The number of threads that is decided is the number that llama.cpp computes with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modeld.engine.contract import AbortFlag, DecodeOptions, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.library import Library
from modeld.engine.thread_tuning import Pace
from shared.catalog.identity import RequestedIdentity

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(60)]
CORES = 3
SAMPLED = DecodeOptions(max_tokens=8, temperature=0.8)


@pytest.fixture
def engine(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaEngine]:
    """On a machine of so many cores."""
    monkeypatch.setattr("modeld.engine.llama.model.engine_threads", lambda asked: asked or CORES)
    loaded = LlamaEngine(AbortFlag())
    loaded.prepare()
    identity = RequestedIdentity(backend="llama", name="tiny", digest="threads", path=str(tiny))
    loaded.load(LoadRequest(identity=identity, model={}, num_ctx=512, threads=0, parked_bytes=0), lambda *_: None)
    yield loaded
    loaded.close()


def computing(engine: LlamaEngine) -> int:
    """What native code says."""
    count: int = Library().api.llama_n_threads(engine._native_of().context)
    return count


def answer(engine: LlamaEngine) -> None:
    engine.ensure_prefix(engine.tokenize("Tell me of the sea.", special=False))
    engine.prefill_suffix(SAMPLED, lambda done, total: None)
    assert list(engine.decode(SAMPLED))
    engine.end_turn()


def test_a_model_is_computed_with_the_cores_there_are(engine: LlamaEngine) -> None:
    answer(engine)
    assert computing(engine) == CORES


def test_on_a_busy_machine_it_goes_on_with_fewer(engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(pace: Pace, tokens: int, now: float, cpu: float) -> bool:
        """A machine that takes a thread away after each token."""
        pace.threads = max(1, pace.threads - 1)
        return True

    monkeypatch.setattr(Pace, "seen", seen)
    answer(engine)
    assert computing(engine) == 1
