"""Who owns, as pure decisions: what a contender may conclude, and how long an owner may act. Pure.

Two clocks never meet here. A contender counts its own awake seconds while the owner's sequence does
not move; an owner counts its own awake seconds from the start of its last good write. The distance
between `ttl + margin` and `ttl - margin` is what keeps the two apart; design.md has the argument.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.lease.record import Identity, LeaseRecord, PresenceRecord

Standing = Literal["none", "held", "released", "dead", "expired"]
Liveness = Literal["alive", "gone", "unknown"]
TenureState = Literal["valid", "frozen", "lost", "released"]

LEAST_MARGIN = 0.25
#: The sequence of a record whose author has not yet confirmed that the lease is its own.
CLAIMED = 0


def margin(ttl: float) -> float:
    """Seconds kept between an owner's fence and a contender's patience: max(ttl/4, 250 ms), ttl/4 for test ttls."""
    return min(max(ttl / 4, LEAST_MARGIN), ttl / 2)


def patience(ttl: float) -> float:
    """Own awake seconds for which a sequence must stand still before a contender may take over."""
    return ttl + margin(ttl)


def validity(ttl: float) -> float:
    """Own awake seconds, from the start of a good write, for which an owner may act."""
    return ttl - margin(ttl)


def frozen_limit(ttl: float) -> float:
    """Awake seconds that a frozen owner may ask before it counts as lost: ttl/4."""
    return ttl / 4


def renew_interval(ttl: float) -> float:
    """A third of the ttl."""
    return ttl / 3


# --- the contender's side ----------------------------------------------------------------------


class Mark(msgspec.Struct, frozen=True):
    """What must stand still: epoch and sequence, or the file's time and size where it cannot be parsed."""

    epoch: int
    sequence: int
    detail: str = ""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """The highest lease file at one look. `record` is None where the file cannot be parsed.

    Epoch 0 says that there is no file although there has been an owner once. `above` is the highest epoch that is
    known from elsewhere. `elsewhere`: the record is about another data root, so it says nothing of this one.
    `outside`: the record is the copy that its owner keeps outside the data root.
    """

    epoch: int
    mark: Mark
    record: LeaseRecord | None = None
    above: int = 0
    elsewhere: bool = False
    outside: bool = False

    @property
    def highest(self) -> int:
        """The highest epoch that is known, wherever it stands."""
        return max(self.epoch, self.above)

    @property
    def ttl(self) -> float | None:
        """The owner's ttl in seconds, if it is known."""
        return self.record.ttl if self.record is not None else None


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """How long a mark has stood still, in awake seconds of the one who looks."""

    mark: Mark
    unmoved: float
    last: float


def is_elsewhere(record: LeaseRecord | PresenceRecord, here: str, boot_id: str) -> bool:
    """Whether a record is about another data root than `here`: it came with a copy, a backup, or a move to another
    disk. Folders can be compared under one kernel alone: of another boot's record nothing is concluded.
    """
    return bool(record.root and here and boot_id) and record.boot_id == boot_id and record.root != here


def contradicts(copy: Sighting | None, found: Sighting | None) -> bool:
    """Whether the copy outside knows better than the highest lease file: of a folder whose records are gone, cannot
    be read or are about another folder; and of one whose records are older than the copy, or of the same epoch by
    another instance. In the order of our writes the file is never behind the copy.
    """
    if copy is None:
        return False
    if found is None or found.record is None:
        return True
    if copy.record is None or copy.above != found.epoch:
        return copy.above > found.epoch
    return copy.record.instance != found.record.instance or copy.mark.sequence > found.mark.sequence


def missing(found: Sighting | None, floor: int) -> Sighting | None:
    """The sighting, unless the database knows a higher epoch, `floor`: then records are missing, and are watched."""
    if floor <= (found.highest if found is not None else 0):
        return found
    epoch = found.epoch if found is not None else 0
    return Sighting(epoch=epoch, above=floor, mark=Mark(epoch, 0, f"missing {floor}"))


def observe(watched: Watched | None, mark: Mark, now: float, longest_step: float) -> Watched:
    """Add one look at `now` (awake seconds).

    The time between two looks counts for `longest_step` at most: who was stopped himself (a suspend,
    SIGSTOP of everybody) has not watched, and must not call the others expired on waking.
    """
    if watched is None or watched.mark != mark:
        return Watched(mark=mark, unmoved=0.0, last=now)
    passed = min(max(now - watched.last, 0.0), longest_step)
    return Watched(mark=mark, unmoved=watched.unmoved + passed, last=now)


def can_prove(other: Identity, me: Identity) -> bool:
    """Whether this process may judge the other's pid: same host, boot and pid namespace, all known."""
    return (
        bool(me.boot_id)
        and bool(me.host)
        and bool(me.pid_namespace)
        and (other.boot_id, other.host, other.pid_namespace) == (me.boot_id, me.host, me.pid_namespace)
    )


def death_proven(
    other: Identity, me: Identity, liveness: Liveness, *, seen: float = 0.0, booted: float | None = None
) -> bool:
    """`liveness` is what this machine says about the pid and start token; `seen` the wall second at which the other
    surely lived last, `booted` that of this kernel's start, None where nobody can say.

    Another host name (a container, a VM on the same folder) proves nothing, neither does another pid namespace of the
    same boot. The same host under another boot id has restarted if the other was seen before that alone: containers
    may have boot ids of their own and the host's name.
    """
    if not me.host or other.host != me.host:
        return False
    if me.boot_id and other.boot_id and other.boot_id != me.boot_id:
        return booted is None or 0 < seen < booted
    return can_prove(other, me) and liveness == "gone"


def judge(
    sighting: Sighting | None,
    unmoved: float,
    me: Identity,
    liveness: Liveness,
    usual_ttl: float,
    booted: float | None = None,
) -> Standing:
    """What the highest lease file means for a contender. `usual_ttl` serves where no record says it; `booted` as in
    `death_proven`.

    A claim that was never confirmed gives no short cut, whether its author died or withdrew: below it
    the owner before it may still be valid, until it next lists.
    """
    if sighting is None or sighting.elsewhere:
        return "none"
    record = sighting.record
    if record is not None and record.sequence > CLAIMED:
        if record.released is not None:
            return "released"
        if death_proven(record.identity, me, liveness, seen=record.renewed, booted=booted):
            return "dead"
    ttl = sighting.ttl if sighting.ttl is not None else usual_ttl
    return "expired" if unmoved >= patience(ttl) else "held"


def may_take(standing: Standing) -> bool:
    """Everything but a held lease may be followed by the next epoch."""
    return standing != "held"


#: Reasons after which a standby acts by itself; after all others somebody meant the owner to go.
_CRASHES = frozenset({"lost"})


def was_crash(standing: Standing, record: LeaseRecord | None) -> bool:
    """Whether the last owner ended without anybody's wish, so that a standby steps in."""
    if standing in ("dead", "expired"):
        return True
    return (
        standing == "released"
        and record is not None
        and record.released is not None
        and (record.released.reason in _CRASHES)
    )


def confirmed(mine: int, epochs: list[int], judged: Mark | None, now_seen: Mark | None) -> bool:
    """After creating epoch `mine`: does it follow the judged one directly, and has that one not moved?

    An epoch in between belongs to a contender that knew of another floor. A moved mark is an owner
    that thawed while the contender was paused between its judgement and its creation: the owner
    writes and then lists, the contender creates and then reads, so at least one sees the other.
    """
    last = sorted(epochs)[-2:]
    expected = [judged.epoch, mine] if judged is not None and judged.epoch else [mine]
    return last == expected and (judged is None or judged == now_seen)


# --- the owner's side --------------------------------------------------------------------------


class Tenure(msgspec.Struct, frozen=True, kw_only=True):
    """How an ownership stands. `valid_until`, `frozen_since` in the owner's awake seconds."""

    ttl: float
    valid_until: float
    state: TenureState = "valid"
    frozen_since: float | None = None


def begin(ttl: float, started: float) -> Tenure:
    """A tenure whose first write began at `started`."""
    return Tenure(ttl=ttl, valid_until=started + validity(ttl))


def tick(tenure: Tenure, now: float) -> Tenure:
    """Let time pass: valid -> frozen at the end of validity; frozen -> lost after ttl/4 more."""
    if tenure.state == "valid" and now >= tenure.valid_until:
        return msgspec.structs.replace(tenure, state="frozen", frozen_since=now)
    if (
        tenure.state == "frozen"
        and tenure.frozen_since is not None
        and now >= tenure.frozen_since + frozen_limit(tenure.ttl)
    ):
        return msgspec.structs.replace(tenure, state="lost")
    return tenure


def wrote(tenure: Tenure, started: float, finished: float, *, higher: bool) -> Tenure:
    """A renewal came back: the write, then the look that saw whether a higher epoch exists.

    Validity counts from `started`. A success that took longer than the validity is worth nothing.
    """
    tenure = tick(tenure, finished)
    if tenure.state in ("lost", "released"):
        return tenure
    if higher:
        return msgspec.structs.replace(tenure, state="lost")
    valid_until = started + validity(tenure.ttl)
    if finished >= valid_until:
        return tenure
    return msgspec.structs.replace(tenure, state="valid", valid_until=valid_until, frozen_since=None)


def next_wake(tenure: Tenure) -> float | None:
    """When `tick` has something to say next, in awake seconds; None once it is over."""
    if tenure.state == "valid":
        return tenure.valid_until
    if tenure.state == "frozen" and tenure.frozen_since is not None:
        return tenure.frozen_since + frozen_limit(tenure.ttl)
    return None
