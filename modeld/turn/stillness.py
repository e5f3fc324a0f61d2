"""Detects a worker that is alive but makes no progress. Pure: accounts and time come in.

A slow prefill or decode moves its worker's mark with each batch, chunk and token; a parser that goes in a circle and
an engine that hangs do not. Two limits, because they are two things: handling text takes milliseconds, so seconds
without a move are a defect; one evaluation of a large model on a small machine may take minutes, so the engine has
long, and longer still where its own steps were seen to take long.
"""

from __future__ import annotations

import msgspec

from shared.settings import Settings

#: Between two accounts at most so many of their intervals count: a longer pause is one of this process or machine.
MOST_INTERVALS = 3
#: The engine has so many times as long as the longest step that was measured in it.
STEPS = 10


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker is. `mark` differs after each move; `place` is where its engine thread is in our code, and
    `in_engine` whether that is the engine. `longest_s`: the longest step of the engine so far.
    """

    mark: float
    in_engine: bool
    place: str = ""
    longest_s: float = 0.0


class Stillness:
    """The awake seconds of one piece of work without a move. Accounts come in the order of time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: Standing | None = None
        self._answered = False
        self._at: float | None = None
        self._in_text = self._in_all = 0.0

    def forget(self) -> None:
        """Begin all counts again: the worker was heard of by itself."""
        self._last = self._at = None
        self._answered = False
        self._in_text = self._in_all = 0.0

    def judge(self, standing: Standing | None, now: float) -> str | None:
        """One account, None for one that did not come; why the work is stuck, in words, or None while it is not.

        One that did not come says nothing of text: the engine may hold up every thread of its process. It counts for
        the engine's limit.
        """
        passed = 0.0 if self._at is None else min(now - self._at, MOST_INTERVALS * self._settings.reaper_interval)
        last, answered = self._last, self._answered
        self._at, self._answered = now, standing is not None
        if standing is not None:
            self._last = standing
            if last is None or standing.mark != last.mark:
                self._in_text = self._in_all = 0.0
                return None
        self._in_all += passed
        if standing is not None and answered and not standing.in_engine:
            self._in_text += passed
        return self._reason()

    def _reason(self) -> str | None:
        last, settings = self._last, self._settings
        if self._in_text >= settings.text_silence:
            where = f", at {last.place}" if last is not None and last.place else ""
            return f"its text was not handled within {settings.text_silence:g} s{where}"
        limit = max(settings.engine_silence, STEPS * (last.longest_s if last is not None else 0.0))
        if self._in_all >= limit:
            return f"it showed no progress for {limit:g} s"
        return None
