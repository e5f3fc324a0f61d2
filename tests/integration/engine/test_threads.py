"""The number of threads that is decided is the number that llama.cpp computes with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeld.engine.contract import AbortFlag, DecodeOptions, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.library import Library
from modeld.engine.processors.load import ProcessorLoad
from modeld.engine.processors.thread_tuning import Reading
from shared.catalog.identity import RequestedIdentity

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(60)]
CORES = 3
SAMPLED = DecodeOptions(max_tokens=8, temperature=0.8)
GREEDY = DecodeOptions(max_tokens=8)
SEEDED = DecodeOptions(max_tokens=8, temperature=0.8, seed=7)
Load = Callable[[int], LlamaEngine]


class Machine:
    """What a machine of so many processors shows while `others` of them compute for somebody else."""

    others = 0
    processors = CORES

    def read(self, computing: int = 1) -> Reading:
        assert 1 <= computing <= CORES
        wall = time.monotonic()
        return Reading(wall=wall, others=self.others * wall, low=0.0, waiting=self.others)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The one that engines of the test run on."""
    made = Machine()
    monkeypatch.setattr("modeld.engine.llama.model.engine_threads", lambda asked: asked or CORES)
    monkeypatch.setattr("modeld.engine.llama.threads.ProcessorLoad", lambda: made)
    return made


@pytest.fixture
def load(tiny: Path, machine: Machine) -> Iterator[Load]:
    """Loads a model with so many threads, or as many as fit."""
    engines = []

    def made(threads: int) -> LlamaEngine:
        engine = LlamaEngine(AbortFlag())
        engines.append(engine)
        engine.prepare()
        identity = RequestedIdentity(backend="llama", name="tiny", digest="threads", path=str(tiny))
        engine.load(LoadRequest(identity=identity, model={}, num_ctx=512, threads=threads), lambda *_: None)
        return engine

    yield made
    for engine in engines:
        engine.close()


def computing(engine: LlamaEngine) -> int:
    """What native code says."""
    count: int = Library().api.llama_n_threads(engine._native_of().context)
    return count


def answer(engine: LlamaEngine, options: DecodeOptions, meanwhile: Callable[[], None] = lambda: None) -> set[int]:
    """Threads at each token of a turn."""
    engine.ensure_prefix(engine.tokenize("Tell me of the sea.", special=False))
    engine.prefill_suffix(options, lambda done, total: None)
    seen = set()
    for _ in engine.decode(options):
        seen.add(computing(engine))
        assert engine.threads == computing(engine)
        meanwhile()
    engine.end_turn()
    return seen


@pytest.mark.parametrize("options", [SAMPLED, GREEDY, SEEDED], ids=["sampled", "greedy", "seeded"])
def test_the_first_turn_has_the_processors_that_others_leave(
    options: DecodeOptions, load: Load, machine: Machine
) -> None:
    assert answer(load(0), options) == {CORES}
    machine.others = 2
    assert answer(load(0), options) == {CORES - 2}


def test_a_turn_that_can_be_asked_for_again_keeps_its_number(
    load: Load, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modeld.engine.processors.thread_tuning.FIRST_WINDOW_S", 0.0)
    monkeypatch.setattr("modeld.engine.processors.thread_tuning.WINDOW_S", 0.0)
    engine = load(0)

    def others_come() -> None:
        machine.others = 2

    for options in (GREEDY, SEEDED):
        assert answer(engine, options, others_come) == {CORES}
        machine.others = 0
    assert answer(engine, SAMPLED, others_come) == {CORES, CORES - 2}


def test_a_number_that_was_asked_for_stays(load: Load, machine: Machine) -> None:
    machine.others = 2
    assert answer(load(2), SAMPLED) == {2}


def test_the_machine_that_is_there_is_read() -> None:
    """Processor time of others grows, by no more than there is; nobody else needs to wait."""
    load = ProcessorLoad()
    first = load.read()
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    second = load.read()
    took = second.wall - first.wall
    assert -0.2 * took <= second.others - first.others <= load.processors * took + 0.05
    assert 0 <= second.low - first.low <= load.processors * took + 0.05
    assert second.waiting is None or second.waiting >= 0
