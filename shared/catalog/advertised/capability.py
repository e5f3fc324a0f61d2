"""Which backend's models may be advertised: the graced answer (pure).

"Can modeld serve this?" must not flap while the daemon restarts, so it is answered from the records:
live while an owner or an instance is there, the last backend for a grace window after it went, nothing
afterwards. Because records say all of it, a bridge that was born in the gap gives the same answer as one
that saw the daemon go. Executing is another question, with strict checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from shared.lease.reader import LeaseView, Survey

Standing = Literal["live", "grace", "none"]
#: Reasons after which somebody meant the daemon to be gone: it comes back by a person's word only.
STOPPED = frozenset({"stop", "shutdown"})
STOPPED_TEXT = "stopped, start modeld"
RESTARTING_TEXT = "restarting"
#: A lease not renewed for this many ttls says no more that its owner lives (ttl and a margin of a quarter).
FRESH_TTLS = 1.25
#: A record may be written while it is looked at: an age this little below zero is no clock that was set back. Seconds.
RACE_S = 2.0


class Servable(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `backend` is "" when nothing may be advertised; `stopped` says that somebody stopped it.

    `remaining` is how many seconds of grace are left (0 unless in grace): look again then. `ever` is
    false when there is no sign that modeld has been started on this data root.
    """

    backend: str
    standing: Standing
    stopped: bool = False
    ever: bool = True
    remaining: float = 0.0

    @property
    def state(self) -> str:
        """What rows say instead of their own state, "" while live."""
        if self.standing == "live":
            return ""
        return STOPPED_TEXT if self.stopped or self.standing == "none" else RESTARTING_TEXT


NOTHING = Servable(backend="", standing="none", ever=False)


def servable_backend(
    records: Survey,
    noticed: Mapping[str, float],
    *,
    grace: float,
    connected: str = "",
    before: Servable = NOTHING,
) -> Servable:
    """The backend whose models may be shown now.

    `noticed` tells for each instance seen dead how many awake seconds ago this process noticed it (a
    death leaves no time in the files); `connected` is the backend of a daemon that answers this process
    right now, "" without. Records that could not be read say nothing: then the answer stays as `before`.
    """
    if connected:
        return Servable(backend=connected, standing="live")
    last = records.last
    if last is not None and last.backend and _fresh(last):
        return Servable(backend=last.backend, standing="live")
    for seen in records.instances:
        if not seen.dead and seen.backend:
            return Servable(backend=seen.backend, standing="live")
    if records.problem:
        return before
    gone = _departures(records, noticed)
    if not gone:
        return Servable(backend="", standing="none", ever=last is not None or bool(records.instances))
    age, stopped, backend = min(gone)
    if age > grace:
        return Servable(backend="", standing="none", stopped=stopped)
    return Servable(backend=backend, standing="grace", stopped=stopped, remaining=grace - age)


def _fresh(lease: LeaseView) -> bool:
    """Held, renewed lately, and in this boot. A clock set back makes the age negative: not then."""
    return lease.standing == "held" and lease.same_boot and -RACE_S <= lease.age_s <= lease.ttl * FRESH_TTLS


def _departures(records: Survey, noticed: Mapping[str, float]) -> list[tuple[float, bool, str]]:
    """(age in seconds, stopped on purpose, backend) of everybody who went in this boot.

    A record of another boot, or from the future, says nothing about now.
    """
    gone: list[tuple[float, bool, str]] = []
    last = records.last
    if last is not None and last.backend and last.same_boot:
        gone.append((last.age_s, last.released_reason in STOPPED, last.backend))
    for seen in records.instances:
        if not seen.backend or not seen.same_boot or not seen.dead:
            continue
        if seen.ended_age_s is not None:
            gone.append((seen.ended_age_s, seen.ended_reason in STOPPED, seen.backend))
        elif last is None or last.instance != seen.instance:  # an owner's lease knows better when
            gone.append((noticed.get(seen.instance, 0.0), False, seen.backend))
    return [(max(age, 0.0), stopped, backend) for age, stopped, backend in gone if age >= -RACE_S]
