"""What a busy machine does not take from a short question."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from modeld.engine.llama import threads
from modeld.engine.llama.model import ContextPlan
from modeld.engine.llama.threads import FIRST_TOKENS, SHORT_TOKENS, Threads
from modeld.engine.processors.thread_tuning import Reading

pytestmark = pytest.mark.unit
BATCH = 512
PLAN = ContextPlan(num_ctx=4096, pool=4096, batch=BATCH, threads=2, kv_type="f16", fill=False)


@pytest.mark.parametrize(
    ("busy", "tokens", "batch", "count"),
    [(0, 2000, BATCH, 2), (1, 2000, FIRST_TOKENS, 1), (1, SHORT_TOKENS, BATCH, 2), (0, SHORT_TOKENS, BATCH, 2)],
)
def test_only_a_long_prompt_on_a_busy_machine_begins_with_few_tokens_and_threads(
    busy: int, tokens: int, batch: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = SimpleNamespace(processors=2, read=lambda: Reading(wall=0.0, others=0.0, low=0.0, waiting=busy))
    monkeypatch.setattr(threads, "ProcessorLoad", lambda: machine)
    native: list[int] = []
    api = SimpleNamespace(llama_set_n_threads=lambda context, one, of_batch: native.append(one))
    tuned = Threads(api, None, PLAN, fixed=False)
    assert tuned.begin_prefill(tokens, BATCH) == batch
    assert native == [count] == [tuned.count]
