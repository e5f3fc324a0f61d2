"""Looking at the lease and taking it: the side of an instance that does not own. Blocking; run in a thread."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.clock import Clock
from shared.lease import policy
from shared.lease.crashpoint import crash_point
from shared.lease.files import LeaseFolder
from shared.lease.place import PlaceLost
from shared.lease.policy import Sighting, Standing, Watched
from shared.lease.process.identity import booted, liveness
from shared.lease.record import USUAL_TTL, Identity, LeaseRecord, Released, Worker

#: A step between two looks counts for this part of the ttl at most (see policy.observe).
STEP_FRACTION = 4


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look: how the lease stands, and the highest record where there is one; `under` is the lease file that the
    copy outside contradicts.
    """

    standing: Standing
    sighting: Sighting | None = None
    unmoved: float = 0.0
    under: Sighting | None = None

    @property
    def record(self) -> LeaseRecord | None:
        """The highest record, if it can be parsed."""
        return self.sighting.record if self.sighting is not None else None


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that is ours: its record, when its write began (awake seconds), who had it before and how that stood.

    While `record.worker` is set, a worker of an earlier owner may still hold a model: see it gone, then
    clear it. It stays named until then, so that the next owner looks for it too if this one dies.
    """

    record: LeaseRecord
    started: float
    before: LeaseRecord | None = None
    standing: Standing = "none"


class _Watch:
    """How long one record was seen to stand still."""

    def __init__(self) -> None:
        self.seen: Watched | None = None


class Contender:
    """Watches the lease of one data root for one instance. One thread at a time.

    Look regularly (a few times per ttl): an owner whose death is not proven counts as gone only
    after it was watched standing still for ttl + margin.
    """

    def __init__(self, folder: LeaseFolder, me: Identity, clock: Clock, usual_ttl: float = USUAL_TTL) -> None:
        self.folder = folder
        self.me = me
        self._clock = clock
        self._usual_ttl = usual_ttl
        self._here = _Watch()
        self._outside = _Watch()
        #: The epoch that the database knows. Records below it are not the last ones.
        self.floor = 0

    def look(self) -> Look:
        """Judge the highest lease file now, and the owner's copy outside where that one contradicts it: the lease is
        free when both say so. Raises OSError where it cannot be read: nothing is known then.
        """
        found = self.folder.sight()
        copy = self.folder.sight_outside(found)
        if copy is None or copy.above < self.floor:
            found = policy.missing(found, self.floor)
        if copy is None or (found is not None and found.record is not None):
            look = self._judge(found, self._here)
            if copy is None or not policy.may_take(look.standing):
                return look
            under = found
        else:
            under = None
        return msgspec.structs.replace(self._judge(copy, self._outside), under=under)

    def _judge(self, sighting: Sighting | None, watch: _Watch) -> Look:
        if sighting is None:
            watch.seen = None
            return Look(standing="none")
        ttl = sighting.ttl if sighting.ttl is not None else self._usual_ttl
        seen = watch.seen = policy.observe(watch.seen, sighting.mark, self._clock.awake(), ttl / STEP_FRACTION)
        record = sighting.record
        alive = (
            liveness(record.pid, record.start_token)
            if record is not None and record.released is None and policy.can_prove(record.identity, self.me)
            else "unknown"
        )
        standing = policy.judge(sighting, seen.unmoved, self.me, alive, self._usual_ttl, booted())
        return Look(standing=standing, sighting=sighting, unmoved=seen.unmoved)

    def take(self, look: Look, instance: str, *, ttl: float, meta: dict[str, Any], floor: int = 0) -> Taken | None:
        """Try to become the owner after `look`; None when the lease is held or somebody was faster.

        The new epoch is above the highest file and above `floor` (the one the database knows).
        Raises OSError when the file cannot be created.
        """
        if not policy.may_take(look.standing):
            return None
        crash_point("acquire.judged")
        started = self._clock.awake()
        now = self._clock.wall()
        judged = look.sighting
        record = LeaseRecord(
            instance=instance,
            epoch=self.folder.free_above(max(judged.highest if judged is not None else 0, floor)),
            pid=self.me.pid,
            start_token=self.me.start_token,
            boot_id=self.me.boot_id,
            pid_namespace=self.me.pid_namespace,
            host=self.me.host,
            acquired=now,
            renewed=now,
            expires=now + ttl,
            sequence=policy.CLAIMED,
            ttl=ttl,
            meta=meta,
            worker=_worker_left(judged),
        )
        created = self.folder.create(record)
        if created is None:
            return None
        crash_point("acquire.created")
        try:
            if not self._confirmed(created, look) or self._clock.awake() >= started + policy.validity(ttl):
                self._withdraw(created)
                return None
            crash_point("acquire.confirmed")
            record = msgspec.structs.replace(created, sequence=policy.CLAIMED + 1)
            self.folder.rewrite(record)
        except PlaceLost:
            self.folder.leave()
            return None
        self.folder.copy_for_people(record)
        before = judged.record if judged is not None else None
        return Taken(record=record, started=started, before=before, standing=look.standing)

    def _confirmed(self, record: LeaseRecord, look: Look) -> bool:
        epochs = self.folder.epochs()
        if look.sighting is None:
            return policy.confirmed(record.epoch, epochs, None, None)
        if look.under is not None and self.folder.mark(look.under) != look.under.mark:
            return False
        return policy.confirmed(record.epoch, epochs, look.sighting.mark, self.folder.mark(look.sighting))

    def _withdraw(self, record: LeaseRecord) -> None:
        """Say of an epoch that was created that it is not used. It stays a claim: see policy.judge."""
        released = Released(reason="withdrawn", at=self._clock.wall())
        self.folder.rewrite(msgspec.structs.replace(record, released=released))
        self.folder.leave()


def _worker_left(judged: Sighting | None) -> Worker | None:
    if judged is None or judged.elsewhere:
        return None
    if judged.record is None:
        return Worker(pid=0)
    return judged.record.worker
