"""Which backend's models may be advertised: the graced answer (pure).

"Can modeld serve this?" must not flap while the daemon restarts, so it is answered from the records,
with the clock passed in: live while an owner or an instance is there, the last backend for a grace
window after it went, nothing afterwards. Because records say all of it, a bridge that was born in the
gap gives the same answer as one that saw the daemon go. Executing is another question with strict checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Standing = Literal["live", "grace", "none"]
#: Reasons after which somebody meant the daemon to be gone: it comes back by a person's word only.
STOPPED = frozenset({"stop", "shutdown"})


class OwnerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest lease. `live`: held, not released, and no proof or sign of death.

    `last_sign` is the wall time of the last renewal or of the release, whichever is later; `released`
    the reason of the release or "".
    """

    instance: str
    backend: str
    live: bool
    last_sign: float
    boot_id: str = ""
    released: str = ""


class InstanceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A presence. `started` in wall seconds; `ended` the reason of an orderly end and `ended_at` its wall
    time; `dead`: proven dead without such an end.
    """

    instance: str
    backend: str
    started: float
    boot_id: str = ""
    dead: bool = False
    ended: str = ""
    ended_at: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it may be running."""
        return not self.dead and not self.ended


class Serveable(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `backend` is "" when nothing may be advertised; `stopped` that somebody stopped it.

    `remaining` is how many seconds of grace are left (0 unless in grace): look again then.
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


STOPPED_TEXT = "stopped, start modeld"
RESTARTING_TEXT = "restarting"


def note_deaths(noticed: Mapping[str, float], instances: Iterable[InstanceSeen], awake: float) -> dict[str, float]:
    """When this process first noticed each dead instance, in its awake seconds. Keep the result."""
    return {seen.instance: noticed.get(seen.instance, awake) for seen in instances if seen.dead}


def serveable_backend(
    owner: OwnerSeen | None,
    instances: Iterable[InstanceSeen],
    *,
    wall: float,
    awake: float,
    boot_id: str,
    grace: float,
    noticed: Mapping[str, float],
) -> Serveable:
    """The backend whose models may be shown now. `noticed` comes from `note_deaths`; seconds throughout."""
    known = sorted(instances, key=lambda seen: (seen.started, seen.instance))
    if owner is not None and owner.live and owner.backend:
        return Serveable(backend=owner.backend, standing="live")
    for seen in known:
        if seen.live and seen.backend:
            return Serveable(backend=seen.backend, standing="live")
    gone = _departures(owner, known, wall=wall, awake=awake, boot_id=boot_id, noticed=noticed)
    if not gone:
        return Serveable(backend="", standing="none", ever=owner is not None or bool(known))
    age, stopped, backend = min(gone)
    if age > grace:
        return Serveable(backend="", standing="none", stopped=stopped)
    return Serveable(backend=backend, standing="grace", stopped=stopped, remaining=grace - age)


def _departures(
    owner: OwnerSeen | None,
    known: list[InstanceSeen],
    *,
    wall: float,
    awake: float,
    boot_id: str,
    noticed: Mapping[str, float],
) -> list[tuple[float, bool, str]]:
    """(age in seconds, stopped on purpose, backend) of everybody who went in this boot.

    A record of another boot, or from the future, says nothing about now.
    """
    gone: list[tuple[float, bool, str]] = []
    if owner is not None and not owner.live and owner.backend and owner.boot_id == boot_id:
        gone.append((wall - owner.last_sign, owner.released in STOPPED, owner.backend))
    for seen in known:
        if not seen.backend or seen.boot_id != boot_id or seen.live:
            continue
        if seen.ended:
            gone.append((wall - seen.ended_at, seen.ended in STOPPED, seen.backend))
        elif owner is None or owner.instance != seen.instance:  # an owner's lease knows better when
            gone.append((awake - noticed.get(seen.instance, awake), False, seen.backend))
    return [item for item in gone if item[0] >= 0]
