"""The threads of llama.cpp's decode, set anew when the pace changes."""

from __future__ import annotations

import time
from typing import Any

from modeld.engine.contract import DecodeOptions
from modeld.engine.llama.model import ContextPlan
from modeld.engine.pace import Pace


class DecodeThreads:
    """Belongs to one context; used by the engine's thread alone."""

    def __init__(self, api: Any, context: Any, plan: ContextPlan) -> None:
        self._api = api
        self._context = context
        self._batch = plan.threads
        self._pace = Pace(plan.threads)
        self._paced = False

    def begin(self, options: DecodeOptions) -> None:
        """A decode begins. One that can be asked for again (greedy, seeded) keeps its number of threads: sums over
        a long context are cut by it, and another order of adding is another last digit.
        """
        self._paced = options.seed is None and options.temperature > 0
        self._set(self._pace.threads if self._paced else self._pace.full)
        self._pace.begin(time.monotonic(), time.thread_time())

    def token(self) -> None:
        """One token was evaluated."""
        if self._paced and self._pace.token(time.monotonic(), time.thread_time()):
            self._set(self._pace.threads)

    def _set(self, threads: int) -> None:
        self._api.llama_set_n_threads(self._context, threads, self._batch)
