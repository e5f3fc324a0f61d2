"""Instances whose death nobody here could see: judged by their signs of life, over this watcher's own time.

A process of another pid namespace or another machine is never proven dead, and without this its backend would be
advertised for as long as its record stands. A living one moves the time of its pulse file every PULSE_SECONDS; one
whose file stood still for SILENT_SECONDS of awake watching counts as dead for whoever watched, and as alive again
as soon as the file moves. The wall clock decides nothing. Without a pulse file nothing is concluded.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from shared.lease import policy
from shared.lease.policy import Mark, Watched
from shared.lease.presence import pulse_file
from shared.lease.reader import PresenceView, Survey
from shared.paths import DataRoot

#: How often a living instance shows itself, at least.
PULSE_SECONDS = 10.0
#: Four signs missed and half of the next: a machine under load is late, not dead.
SILENT_SECONDS = 45.0


class Pulses:
    """What one watcher has seen of one data root. `judge` every survey of it."""

    def __init__(self, root: DataRoot, stamp: Callable[[str], int | None] | None = None) -> None:
        self._root = root
        self._stamp = stamp if stamp is not None else self._read
        self._watched: dict[str, Watched] = {}

    def judge(self, survey: Survey, now: float) -> Survey:
        """The survey with those called dead that have been silent; `now` in awake seconds."""
        doubtful = [view for view in survey.instances if not view.dead and not view.provable]
        self._watched = {view.instance: seen for view in doubtful if (seen := self._look(view, now)) is not None}
        silent = {name for name, seen in self._watched.items() if seen.unmoved >= SILENT_SECONDS}
        if not silent:
            return survey
        judged = [
            msgspec.structs.replace(view, dead=True) if view.instance in silent else view for view in survey.instances
        ]
        return msgspec.structs.replace(survey, instances=judged)

    def _look(self, view: PresenceView, now: float) -> Watched | None:
        stamp = self._stamp(view.instance)
        if stamp is None:
            return None
        return policy.observe(self._watched.get(view.instance), Mark(0, stamp), now, PULSE_SECONDS)

    def _read(self, instance: str) -> int | None:
        try:
            return os.stat(pulse_file(self._root, instance)).st_mtime_ns
        except OSError:
            return None
