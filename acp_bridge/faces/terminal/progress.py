"""The line that tells how far a turn is: stage, elapsed and expected seconds. Pure; gets the time as a number."""

from __future__ import annotations

import msgspec

from acp_bridge.conversations.events import Staged
from shared.protocol import api
from shared.text.words import counted

#: A fraction below this says nothing about the whole: some engines stand there for most of a load.
TELLING_FRACTION = 0.05
#: A stage that is over sooner is not shown: nobody could read it. Seconds.
SHOWN_AFTER_S = 0.3


class Paces(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took this model before: seconds of a load, tokens read in a second. 0 where that is not known."""

    load_s: float = 0.0
    read_per_s: float = 0.0


class Progress:
    """Sees the stages of one turn. `now` is in seconds of any clock that only goes forward."""

    def __init__(self, paces: Paces | None = None) -> None:
        self._paces = paces or Paces()
        self._stage: object = None
        self._kind = ""
        self._model = ""
        self._since = 0.0
        self._reused = 0

    def see(self, event: Staged, now: float) -> None:
        """The next stage, or the same one further on."""
        stage = event.stage
        self._model = event.model
        if isinstance(stage, api.Prefix):
            self._reused = stage.reused
            stage = api.Prefill(done=stage.reused, total=stage.total)
        self._begin(type(stage).__name__, now)
        self._stage = stage

    def wait(self, title: str, now: float) -> None:
        """Something else is waited for; "" when that has ended."""
        self._begin(title, now)
        self._stage = title or None

    def _begin(self, kind: str, now: float) -> None:
        if kind != self._kind:
            self._kind, self._since = kind, now

    def line(self, now: float) -> str:
        """What to show now; "" while there is nothing worth it."""
        spent = now - self._since
        told, expected = self._told(spent)
        if not told or spent < SHOWN_AFTER_S:
            return ""
        about = f" of about {_seconds(expected)}" if expected > spent else ""
        return f"{told} · {_seconds(spent)}{about}"

    def _told(self, spent: float) -> tuple[str, float]:
        """The stage in words, and the seconds it takes in all as far as that can be foretold, else 0."""
        stage = self._stage
        if isinstance(stage, str):
            return stage, 0.0
        if isinstance(stage, api.Queued):
            behind = f", behind {', '.join(dict.fromkeys(stage.ahead))}" if stage.ahead else ""
            return f"Waiting for the model (place {stage.position}{behind})", 0.0
        if isinstance(stage, api.Loading):
            room = f", unloading {stage.unloads}" if stage.unloads else ""
            told = f"Loading {stage.model or self._model} ({stage.fraction:.0%}{room})"
            by_fraction = spent / stage.fraction if stage.fraction >= TELLING_FRACTION else 0.0
            return told, self._paces.load_s or by_fraction
        if isinstance(stage, api.Prefill):
            new, done = stage.total - self._reused, stage.done - self._reused
            told = f"Reading {counted(stage.total, 'token')}" + (f" ({done / new:.0%})" if 0 < done < new else "")
            pace = done / spent if done > 0 and spent > 0 else self._paces.read_per_s
            return told, new / pace if pace > 0 else 0.0
        return ("Thinking", 0.0) if isinstance(stage, api.Thinking) else ("", 0.0)


def _seconds(value: float) -> str:
    """Tenths while they can be read, whole seconds and minutes above."""
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 90 else f"{value // 60:.0f} min {value % 60:.0f} s"
