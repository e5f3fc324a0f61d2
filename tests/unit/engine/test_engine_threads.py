"""Which number of threads a piece of work gets, against an engine that only remembers what it was given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from modeld.engine.contract import DecodeOptions
from modeld.engine.llama import threads
from modeld.engine.llama.model import ContextPlan
from modeld.engine.llama.threads import SHORT_TOKENS, Threads

pytestmark = pytest.mark.unit
SAMPLED = DecodeOptions(max_tokens=1, temperature=0.8)


class Machine:
    """Two threads, a clock set by hand, and a share of the processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.cpu = 0.0
        self.set: list[int] = []
        clock = SimpleNamespace(monotonic=lambda: self.wall, thread_time=lambda: self.cpu)
        monkeypatch.setattr(threads, "time", clock)
        api = SimpleNamespace(llama_set_n_threads=lambda context, one, batch: self.set.append(one))
        plan = ContextPlan(num_ctx=4096, pool=4096, batch=512, threads=2, kv_type="f16", fill=False)
        self.threads = Threads(api, None, plan)

    def work(self, tokens: int, seconds: float, share: float) -> None:
        """So much was computed."""
        self.wall += seconds
        self.cpu += seconds * share
        self.threads.computed(tokens)


def test_what_a_long_prompt_learnt_of_a_busy_machine_does_not_slow_a_short_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    machine.threads.begin_prefill(2000, 512)
    for _ in range(2):
        machine.work(512, 5.0, 0.3)
    machine.work(512, 1.0, 0.9)  # with one thread: faster, and kept
    assert machine.threads.count == 1
    machine.threads.begin_prefill(SHORT_TOKENS, 512)
    assert machine.threads.count == 2
    machine.threads.begin_decode(SAMPLED)
    assert machine.threads.count == 2
    machine.threads.begin_prefill(2000, 512)
    assert machine.threads.count == 1
    assert machine.set[-1] == 1


def test_an_answer_that_can_be_asked_for_again_keeps_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.threads.begin_decode(SAMPLED)
    for _ in range(2):
        machine.work(5, 1.0, 0.3)
    assert machine.threads.count == 1
    machine.threads.begin_decode(DecodeOptions(max_tokens=1, temperature=0.8, seed=1))
    assert machine.threads.count == 2
    machine.threads.begin_decode(DecodeOptions(max_tokens=1))
    assert machine.threads.count == 2
