"""How many threads an engine uses while other programs want the processors too. Pure: what the machine shows is given.

Threads that compute together meet at a barrier some hundred times a token, and each meeting waits for whichever one
the system has set aside: a thread more than there are free processors costs most of the speed. Measured on two
processors with one busy program beside: decode of 6 to 29 tokens/s with two threads, 82 with one; prefill of 201 to
317, and 343. So as many threads compute as others leave processors, and at least one. Programs of low priority are
made to wait where each processor has one (92 to 98 tokens/s with two threads, 82 with one), but keep a processor that
is theirs alone (18 to 31, and 77).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from modeld.engine.required import required

#: Work that a judgement rests on (seconds): the first must come soon, later ones may be sure.
FIRST_WINDOW_S = 0.05
WINDOW_S = 0.25
#: Others may take this much of a processor (an editor that draws) before a thread is taken away for it: with two
#: threads 0.3 of a busy program cost as much as the second thread gains.
SPARE = 0.3
#: A judgement this old (seconds) says nothing of now; one younger holds while as many others want a processor.
STALE_S = 30.0


class Reading(NamedTuple):
    """What the machine shows at one moment.

    `wall`: seconds of a clock that does not go back. `others` and `low`: processor seconds that everybody else has had
    on the processors that this process may use, and that programs of low priority have had. `waiting`: threads of
    everybody else that run or could run just now; None where the system does not tell.
    """

    wall: float
    others: float
    low: float
    waiting: int | None


class ThreadCount:
    """The threads of one engine. Kept over turns, since the load of a machine is."""

    def __init__(self, full: int, processors: int) -> None:
        """`full`: threads on a quiet machine, at least 1; `processors`: logical ones that this process may use."""
        self._full, self._processors = full, processors
        self.threads = full
        self._window = FIRST_WINDOW_S
        self._last: Reading | None = None
        self._judged: Reading | None = None

    @property
    def contended(self) -> bool:
        """Whether others want a processor of ours."""
        return self.threads < self._full

    def begin(self, now: Reading) -> None:
        """Work begins after a time in which nothing was computed, which is no measure for what comes."""
        self._last, self._window = now, FIRST_WINDOW_S
        judged = self._judged
        if judged is not None and now.wall - judged.wall < STALE_S and now.waiting == judged.waiting:
            return
        self.threads = self._beside(now.waiting or 0)

    def due(self, wall: float) -> bool:
        """Whether work has gone on for long enough to be judged."""
        return self._last is not None and wall - self._last.wall >= self._window

    def judge(self, now: Reading) -> bool:
        """Work has gone on from `begin`, or the judgement before, until `now`; whether `threads` has changed."""
        last = required(self._last)
        took = now.wall - last.wall
        low = (now.low - last.low) / took
        wanted = (now.others - last.others) / took
        if now.waiting is not None and last.waiting is not None and min(now.waiting, last.waiting) >= self._processors:
            wanted -= low  # each processor has one, and they give way
        before, self.threads = self.threads, self._beside(math.ceil(max(0.0, wanted - SPARE)))
        self._last = self._judged = now
        self._window = WINDOW_S
        return self.threads != before

    def _beside(self, others: int) -> int:
        return max(1, min(self._full, self._processors - others))
