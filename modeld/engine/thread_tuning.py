"""How many threads an engine uses while other programs want the processors too. Pure: the time is given.

Threads that compute together meet at a barrier some hundred times a token, and each meeting waits for whichever one
the system has set aside. Measured on two busy cores: decode of 3 to 9 tokens/s with two threads, 20 to 37 with one,
115 when nothing else runs; prefill of less than 18, 40 and 270. So the number is halved while the engine is kept from
its processor, doubled again now and then, and a step is kept only when it was faster.
"""

from __future__ import annotations

#: One judgement (seconds of work), and the fewest tokens it may rest on.
WINDOW_S = 0.25
LEAST_TOKENS = 4
#: The engine's own thread ran less than this of so many windows in a row: somebody else has its processor for good.
CONTENDED = 0.6
CONTENDED_WINDOWS = 2
#: A step must be faster by this factor to be kept: less is noise.
FASTER = 1.1
#: After a step that was none: this long until the next is tried, doubled each time (seconds of work).
PAUSE_S = 2.0
MOST_PAUSE_S = 8.0
#: A failed step this long ago (seconds of the clock) says little of now: short questions do little work in a minute.
STALE_S = 30.0


class Pace:
    """The threads of one engine for one kind of work: a prefill computes more tokens a second than a decode does, and
    one is no measure for the other. Kept over turns, since so is the load; a judgement may rest on several.
    """

    def __init__(self, full: int) -> None:
        """`full`: threads on a quiet machine, at least 1."""
        self.full = full
        self.threads = full
        self._tokens = 0
        self._wall = self._cpu = 0.0
        self._took = self._ran = 0.0
        self._failed_at = 0.0
        self._elapsed = self._due = 0.0
        self._pause = PAUSE_S
        self._contended = 0
        self._before: tuple[int, float] | None = None

    def begin(self, wall: float, cpu: float) -> None:
        """ScheduledRequest begins: `wall` in seconds of a clock that does not go back, `cpu` of this thread.

        The time since the last counts for nothing.
        """
        self._wall, self._cpu = wall, cpu

    def seen(self, tokens: int, wall: float, cpu: float) -> bool:
        """So many tokens more were computed; whether `threads` has changed."""
        self._tokens += tokens
        self._took += wall - self._wall
        self._ran += cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        if self._took < WINDOW_S or self._tokens < LEAST_TOKENS:
            return False
        self._elapsed += self._took
        threads = self.threads
        self._judge(self._tokens / self._took, self._ran / self._took)
        self._tokens, self._took, self._ran = 0, 0.0, 0.0
        return self.threads != threads

    def _judge(self, rate: float, share: float) -> None:
        if self._before is not None:
            threads, earlier = self._before
            self._before = None
            if rate > earlier * FASTER:
                self._pause = PAUSE_S
                return
            self.threads = threads
            self._due, self._failed_at = self._elapsed + self._pause, self._wall
            self._pause = min(2 * self._pause, MOST_PAUSE_S)
            return
        self._contended = self._contended + 1 if share < CONTENDED else 0
        if self._elapsed >= self._due or self._wall - self._failed_at > STALE_S:
            if self._contended >= CONTENDED_WINDOWS and self.threads > 1:
                self._try(self.threads // 2, rate)
            elif self.threads < self.full:
                self._try(min(2 * self.threads, self.full), rate)

    def _try(self, threads: int, rate: float) -> None:
        self._contended = 0
        self._before = (self.threads, rate)
        self.threads = threads
