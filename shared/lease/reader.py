"""One bounded look at the records, for bridges and commands: who owns, who lives, how it ended.

Nothing is dialled and nothing is written. `change_key` is the cheap question for pollers.
"""

from __future__ import annotations

import os
import time
from typing import Literal

import msgspec

from shared.lease import files, policy, presence
from shared.lease.process import identity
from shared.lease.record import Identity, LeaseRecord, PresenceRecord, Worker, meta_of
from shared.paths import DataRoot

LeaseStanding = Literal["held", "released", "dead", "unreadable"]


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """The highest lease record as a client sees it.

    `age_s` is the wall time since it was last written (negative after a clock step), `dead` whether
    the owner's death is proven, `same_boot` whether it was written since this machine started.
    """

    standing: LeaseStanding
    epoch: int
    age_s: float
    instance: str = ""
    endpoint: str = ""
    token_file: str = ""
    pid: int = 0
    start_token: str = ""
    host: str = ""
    backend: str = ""
    protocol_min: int = 0
    protocol_max: int = 0
    version: str = ""
    ttl: float = 0.0
    sequence: int = 0
    renewed: float = 0.0
    dead: bool = False
    same_boot: bool = True
    released_reason: str = ""
    worker: Worker | None = None


class PresenceView(msgspec.Struct, frozen=True, kw_only=True):
    """One instance, owner or not. `dead`: ended in order (`ended_reason`) or proven dead.

    `provable`: its death would be seen here. If not, `shared.lease.pulse` tells by its signs of life.
    """

    instance: str
    endpoint: str
    token_file: str
    pid: int
    start_token: str
    host: str
    backend: str
    protocol_min: int
    protocol_max: int
    version: str
    started: float
    dead: bool
    same_boot: bool
    provable: bool = True
    ended_reason: str = ""
    ended_age_s: float | None = None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the records.

    `owner` is the lease that somebody holds (or held until a crash: see `dead`), None when nobody
    does; `last` the highest record in any case. `instances` are sorted, oldest first. `released` and
    `released_age_s` say how the last owner let go. `problem` names what could not be read: then
    nothing is known, and an empty survey means no absence.
    """

    owner: LeaseView | None = None
    last: LeaseView | None = None
    instances: list[PresenceView] = []
    released: str = ""
    released_age_s: float | None = None
    change_key: str = ""
    problem: str = ""

    @property
    def living(self) -> list[PresenceView]:
        """Instances not proven dead, oldest first."""
        return [view for view in self.instances if not view.dead]


def survey(root: DataRoot, *, wall: float | None = None, me: Identity | None = None) -> Survey:
    """Read the records at wall second `wall` (default now). Never raises; bounded by a few dozen small files."""
    wall = time.time() if wall is None else wall
    viewer = me if me is not None else identity.current()
    key = change_key(root)
    problem = ""
    last: LeaseView | None = None
    instances: list[PresenceView] = []
    try:
        sighting = files.sight(root)
        if sighting is not None and sighting.epoch and not sighting.elsewhere:
            last = _lease_view(root, sighting, viewer, wall)
    except OSError as error:
        problem = f"{error.filename or root.owner}: {error.strerror or error}"
    try:
        instances = [_presence_view(record, viewer, wall) for record in presence.list_records(root)]
    except OSError as error:
        problem = problem or f"{error.filename or root.instances}: {error.strerror or error}"
    released = last is not None and last.standing == "released"
    return Survey(
        owner=None if released else last,
        last=last,
        instances=instances,
        released=last.released_reason if last is not None else "",
        released_age_s=last.age_s if last is not None and released else None,
        change_key=key,
        problem=problem,
    )


def change_key(root: DataRoot) -> str:
    """Changes whenever a record is written, made or removed. Stat calls alone, some tens of microseconds.

    A death leaves no trace in the files: it shows by the connection, or by the next survey.
    """
    parts = []
    for folder in (root.owner, root.instances):
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    facts = entry.stat(follow_symlinks=False)
                    parts.append(f"{entry.name}:{facts.st_mtime_ns}:{facts.st_size}:{facts.st_ino}")
        except OSError as error:
            parts.append(f"{folder.name}!{error.errno}")
    return "|".join(sorted(parts))


def _lease_view(root: DataRoot, sighting: policy.Sighting, me: Identity, wall: float) -> LeaseView:
    record = sighting.record
    if record is None:
        try:
            written = (root.owner / f"{sighting.epoch}.lease").lstat().st_mtime
        except OSError:
            written = wall
        return LeaseView(standing="unreadable", epoch=sighting.epoch, age_s=wall - written, renewed=written)
    dead = record.released is None and _dead(record, me)
    meta = meta_of(record)
    written = record.renewed if record.released is None else record.released.at
    return LeaseView(
        standing="released" if record.released is not None else "dead" if dead else "held",
        epoch=record.epoch,
        age_s=wall - written,
        instance=record.instance,
        endpoint=meta.endpoint,
        token_file=meta.token_file,
        pid=record.pid,
        start_token=record.start_token,
        host=record.host,
        backend=meta.backend,
        protocol_min=meta.protocol_min,
        protocol_max=meta.protocol_max,
        version=meta.version,
        ttl=record.ttl,
        sequence=record.sequence,
        renewed=record.renewed,
        dead=dead,
        same_boot=_same_boot(record, me),
        released_reason=record.released.reason if record.released is not None else "",
        worker=record.worker,
    )


def _presence_view(record: PresenceRecord, me: Identity, wall: float) -> PresenceView:
    ended = record.ended
    return PresenceView(
        instance=record.instance,
        endpoint=record.endpoint,
        token_file=record.token_file,
        pid=record.pid,
        start_token=record.start_token,
        host=record.host,
        backend=record.backend,
        protocol_min=record.protocol_min,
        protocol_max=record.protocol_max,
        version=record.version,
        started=record.started,
        dead=presence.is_dead(record, me),
        provable=policy.can_prove(record.identity, me),
        same_boot=_same_boot(record, me),
        ended_reason=ended.reason if ended is not None else "",
        ended_age_s=wall - ended.at if ended is not None else None,
    )


def _dead(record: LeaseRecord, me: Identity) -> bool:
    alive = identity.liveness(record.pid, record.start_token) if policy.can_prove(record.identity, me) else "unknown"
    return policy.death_proven(record.identity, me, alive, seen=record.renewed, booted=identity.booted())


def _same_boot(record: LeaseRecord | PresenceRecord, me: Identity) -> bool:
    return not record.boot_id or not me.boot_id or record.boot_id == me.boot_id
