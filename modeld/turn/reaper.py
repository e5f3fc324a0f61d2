"""Finds leases that the engine's own account contradicts. Pure: samples and time come in.

Only positive evidence counts, and only such as a live operation cannot produce: it has been silent,
and sample after sample shows the engine at something else. A sample that failed proves nothing.
"""

from __future__ import annotations

import msgspec

from modeld.turn.lease import LeaseTable, LeaseView
from shared.settings import Settings


class EngineTruth(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine says it runs: the number of the work, or None when it is wholly idle."""

    running: int | None


class Reaped(msgspec.Struct, frozen=True, kw_only=True):
    """One lease that was cleared, for the log."""

    number: int
    operation: str
    holder: str
    stage: str
    age_s: float


class Reaper:
    """Counts contradictions lease by lease; what it returns has to be ended and reported by the caller."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def suspects(self, table: LeaseTable, now: float) -> list[LeaseView]:
        """Leases of the engine that were silent for long enough that a sample is worth taking."""
        silence = self._settings.reaper_silence
        return [view for view in table.views() if view.on_engine and now - view.last_signal >= silence]

    def reconcile(self, table: LeaseTable, truth: EngineTruth | None, now: float) -> list[Reaped]:
        """Judge one sample; None is a failed one, which is no evidence in either direction."""
        if truth is None:
            return []
        reaped = []
        for view in table.views():
            if not view.on_engine:
                continue  # its engine is another process, or none: the resident one knows nothing of it
            silent = now - view.last_signal >= self._settings.reaper_silence
            strikes = view.strikes + 1 if silent and _contradicts(view, truth) else 0
            table.strike(view.number, strikes)
            if strikes >= self._settings.reaper_samples:
                reaped.append(
                    Reaped(
                        number=view.number,
                        operation=view.operation,
                        holder=view.holder,
                        stage=view.stage,
                        age_s=now - view.started,
                    )
                )
                table.drop(view.number)
        return reaped


def _contradicts(view: LeaseView, truth: EngineTruth) -> bool:
    """A pinned lease is judged by its own number; another one only by an engine that is wholly idle."""
    if view.pin is not None:
        return truth.running != view.pin
    return truth.running is None
