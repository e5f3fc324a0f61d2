"""The threads of llama.cpp, set again when the pace changes."""

from __future__ import annotations

import time
from typing import Any

from modeld.engine.contract import DecodeOptions
from modeld.engine.llama.model import ContextPlan
from modeld.engine.thread_tuning import Pace

#: A prompt that is not short begins with a batch of a few tokens: on a busy machine a full one would take half a
#: minute before the number of threads could be judged.
FIRST_TOKENS = 32
SHORT_TOKENS = 128


class Threads:
    """Belongs to one context; used by the engine's thread alone."""

    def __init__(self, api: Any, context: Any, plan: ContextPlan) -> None:
        self._api = api
        self._context = context
        self._prefill, self._decode = Pace(plan.threads), Pace(plan.threads)
        self._pace = self._prefill
        self._paced = True

    @property
    def count(self) -> int:
        """How many compute now."""
        return self._pace.threads if self._paced else self._pace.full

    def begin_prefill(self, tokens: int, batch: int) -> int:
        """How many of `tokens` the first batch may have, `batch` at most. Threads change nothing in the result."""
        # A short question is computed within a moment, and a system gives that to whoever has slept: what a long prompt
        # or a decode had to learn of a busy machine does not hold for it (80 ms against 150 to 240 were measured).
        self._begin(self._prefill, paced=tokens > SHORT_TOKENS)
        return batch if tokens <= SHORT_TOKENS or self._pace.full == 1 else min(FIRST_TOKENS, batch)

    def begin_decode(self, options: DecodeOptions) -> None:
        """One that can be asked for again (greedy, seeded) keeps its number of threads: sums over a long context are
        cut by it, and another order of adding is another last digit.
        """
        self._begin(self._decode, paced=options.seed is None and options.temperature > 0)

    def computed(self, tokens: int) -> None:
        """So many tokens were evaluated."""
        if self._paced and self._pace.seen(tokens, time.monotonic(), time.thread_time()):
            self._set()

    def _begin(self, pace: Pace, *, paced: bool) -> None:
        self._pace, self._paced = pace, paced
        self._pace.begin(time.monotonic(), time.thread_time())
        self._set()

    def _set(self) -> None:
        self._api.llama_set_n_threads(self._context, self.count, self.count)
