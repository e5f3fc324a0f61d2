"""What an instance that does not own makes of the lease: whether to step in, and when to look again. Pure."""

from __future__ import annotations

from collections.abc import Callable

from shared.lease import policy
from shared.lease.contender import Look
from shared.lease.record import LeaseRecord

#: How soon a death is seen that the system does not tell by itself: it is to be acted on within 1 s. Seconds.
LONGEST_POLL = 0.5
#: Looks in one ttl. Less than the contender's step (ttl/4), so that a look that comes a little late counts whole.
LOOKS_PER_TTL = 5


class Standby:
    """Decides when an instance steps in by itself: the oldest at once, younger ones only if it does not.

    Only after a crash in its own time: of an ownership that was seen held, or that began after the first
    look. So a fresh instance beside the record of an old crash stays without ownership until it is needed.
    """

    def __init__(self) -> None:
        self.last: Look | None = None
        self._first_epoch: int | None = None
        self._held_epoch = 0
        self._free_since: float | None = None

    def saw(self, look: Look, now: float, rank: Callable[[str], int | None], patience: float) -> bool:
        """Take in one look at `now` (awake seconds); whether to step in now. `rank` as presence.rank_of."""
        self.last = look
        epoch = look.sighting.epoch if look.sighting is not None else 0
        if self._first_epoch is None:
            self._first_epoch = epoch
        if look.standing == "held":
            self._held_epoch, self._free_since = epoch, None
            return False
        witnessed = epoch == self._held_epoch or epoch > self._first_epoch
        if not witnessed or not policy.was_crash(look.standing, look.record):
            self._free_since = None
            return False
        if self._free_since is None:
            self._free_since = now
        place = rank(look.record.instance if look.record is not None else "")
        return place is not None and now - self._free_since >= place * patience

    def pause(self, ttl: float, *, reported: bool, provable: bool) -> float:
        """Seconds until the next look, unless something happens before.

        `reported`: the system reports the owner's end by itself; `provable`: its end can be seen by looking.
        A lease that stands still is looked at again at the very moment at which it would be free.
        """
        pace = ttl / LOOKS_PER_TTL
        look = self.last
        if look is None or self._free_since is not None:
            return min(LONGEST_POLL, pace)
        if look.standing != "held":
            return pace
        if look.unmoved > 0:
            pace = min(pace, max(policy.patience(_ttl_of(look.record, ttl)) - look.unmoved, 0.0) + 0.001)
        return pace if reported or not provable else min(LONGEST_POLL, pace)


def _ttl_of(record: LeaseRecord | None, usual: float) -> float:
    return record.ttl if record is not None else usual
