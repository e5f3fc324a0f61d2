"""The threads of llama.cpp, set again when other programs want the processors too."""

from __future__ import annotations

import time
from typing import Any

from modeld.engine.contract import DecodeOptions
from modeld.engine.llama.model import ContextPlan
from modeld.engine.processors.load import ProcessorLoad
from modeld.engine.processors.thread_tuning import ThreadCount

#: On a busy machine a prompt that is not short begins with a batch of a few tokens: a full one would take seconds
#: before the number of threads could be judged.
FIRST_TOKENS = 32
SHORT_TOKENS = 128


class Threads:
    """Belongs to one context; used by the engine's thread alone."""

    def __init__(self, api: Any, context: Any, plan: ContextPlan, *, fixed: bool) -> None:
        """`fixed`: the number was asked for, and stays."""
        self._api = api
        self._context = context
        self._full = plan.threads
        self._load = ProcessorLoad()
        self._tuned = ThreadCount(plan.threads, self._load.processors)
        self._follows = not fixed and plan.threads > 1
        self._steady = True
        self.count = plan.threads

    def begin_prefill(self, tokens: int, batch: int) -> int:
        """How many of `tokens` the first batch may have, `batch` at most. Threads change nothing in the result."""
        # A short question is computed within a moment, and a system gives that to whoever has slept: what a long prompt
        # or a decode had to learn of a busy machine does not hold for it (80 ms against 150 to 240 were measured).
        short = tokens <= SHORT_TOKENS
        if self._follows:
            self._tuned.begin(self._load.read())
        self._set(self._full if short else self._tuned.threads)
        self._steady = short
        return min(FIRST_TOKENS, batch) if self._tuned.contended and not short else batch

    def begin_decode(self, options: DecodeOptions) -> None:
        """One that can be asked for again (greedy, seeded) keeps its number of threads: sums over a long context are
        cut by it, and another order of adding is another last digit.
        """
        self._judge()
        self._set(self._tuned.threads)
        self._steady = options.seed is not None or options.temperature <= 0

    def computed(self) -> None:
        """A step was evaluated."""
        if not self._steady and self._judge():
            self._set(self._tuned.threads)

    def _judge(self) -> bool:
        return self._follows and self._tuned.due(time.monotonic()) and self._tuned.judge(self._load.read(self.count))

    def _set(self, count: int) -> None:
        self.count = count
        self._api.llama_set_n_threads(self._context, count, count)
