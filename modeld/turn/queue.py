"""Orders waiting requests: round robin by client, first come first served within one, batched by model. Pure.

Every use of the engine is a ticket: turns and loads first, then fill, then warm. A ticket covers the
switch, the load and the work itself, so that nobody slips in between. A ticket whose model is not the
resident one (a *switch*) waits while others want the resident model, but never longer than the affinity
bound, counted from the later of its arrival and the moment the resident model came: two editors with
two models alternate in batches. A hold (`run/hold`) counts as a waiter of its model until it runs out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.catalog.identity import RequestedIdentity, ResolvedIdentity, covers, serves
from shared.errors import QueueFull
from shared.settings import Settings

#: After a turn of another client a switch waits this long: its next turn is often on its way already, and a
#: load costs more than the pause. Seconds.
LINGER = 0.5
#: What is resident, or is being loaded already.
Resident = ResolvedIdentity | RequestedIdentity
Kind = Literal["turn", "load", "unload", "embed", "warm", "fill"]
#: Lower goes first. Warm and fill give way to whatever a person waits for.
PRIORITY: dict[str, int] = {"turn": 0, "load": 0, "unload": 0, "embed": 0, "fill": 1, "warm": 2}


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `client` identifies a connection, `client_name` is for people; times in awake seconds.

    `wanted` None (unload) fits whatever is resident. `front` (on_busy cancel) goes before all others.
    """

    number: int
    client: int
    client_name: str
    kind: Kind
    model: str
    wanted: RequestedIdentity | None
    arrived: float
    deadline: float
    load_seconds: float = 0.0
    front: bool = False


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A client that runs tools between two turns of one prompt."""

    client: int
    client_name: str
    model: str
    run: str
    expires: float


class TurnQueue:
    """The waiting tickets and the holds. Time comes in with each call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: dict[int, Ticket] = {}
        #: For each client the number of its last turn among all, or where the round stood when it came.
        self._served: dict[int, int] = {}
        self._serial = 0
        self._holds: dict[tuple[int, str], Hold] = {}
        self._last_use: tuple[int, float] | None = None

    # --- tickets -------------------------------------------------------------------------------

    def add(self, ticket: Ticket) -> None:
        """Raises QueueFull. Warm and fill never fill the queue up for turns."""
        peers = [other for other in self._waiting.values() if PRIORITY[other.kind] == PRIORITY[ticket.kind]]
        if len(peers) >= self._settings.queue_limit:
            raise QueueFull(position=len(peers) + 1, waited_s=0.0)
        self._waiting[ticket.number] = ticket
        # a newcomer joins the round where it stands: who dials again for each turn gains nothing by it
        self._served.setdefault(ticket.client, self._serial)

    def remove(self, number: int) -> bool:
        """Take a ticket out; false when it was not waiting."""
        return self._waiting.pop(number, None) is not None

    def expired(self, now: float) -> list[Ticket]:
        """Tickets whose deadline has passed, taken out."""
        late = [ticket for ticket in self._waiting.values() if now >= ticket.deadline]
        for ticket in late:
            del self._waiting[ticket.number]
        return late

    @property
    def waiting(self) -> list[Ticket]:
        """In order of arrival."""
        return list(self._waiting.values())

    def __len__(self) -> int:
        return len(self._waiting)

    # --- holds ---------------------------------------------------------------------------------

    def hold(self, client: int, client_name: str, model: str, run: str, now: float) -> None:
        """Begin or renew a hold."""
        expires = now + self._settings.hold_ttl
        self._holds[client, run] = Hold(client=client, client_name=client_name, model=model, run=run, expires=expires)

    def release(self, client: int, run: str) -> None:
        """End a hold; one that is not there is over already."""
        self._holds.pop((client, run), None)

    def note_use(self, client: int, now: float) -> None:
        """`client` has just ended a turn on the resident model."""
        self._last_use = (client, now)

    def forget_use(self) -> None:
        """The model has gone."""
        self._last_use = None

    def holds(self, now: float) -> list[Hold]:
        """Those in force."""
        self._holds = {key: hold for key, hold in self._holds.items() if hold.expires > now}
        return list(self._holds.values())

    def drop_client(self, client: int) -> list[Ticket]:
        """The client has gone: its holds end and its tickets are taken out."""
        self._holds = {key: hold for key, hold in self._holds.items() if hold.client != client}
        self._served.pop(client, None)
        if self._last_use is not None and self._last_use[0] == client:
            self._last_use = None
        gone = [ticket for ticket in self._waiting.values() if ticket.client == client]
        for ticket in gone:
            del self._waiting[ticket.number]
        return gone

    # --- the choice ----------------------------------------------------------------------------

    def next(self, now: float, resident: Resident | None, resident_since: float) -> Ticket | None:
        """The ticket that should have the slot now, or None: nobody, or a switch that has to wait. Changes nothing."""
        if not self._waiting:
            return None
        first = self._choose(self.waiting, self._served, now, self._fitting(resident), resident_since)
        return None if self._must_wait(first, now, resident, resident_since) else first

    def order(self, now: float, resident: Resident | None, resident_since: float) -> list[Ticket]:
        """All tickets as they would be served if none came or left: a ticket's place is its index plus one."""
        left = dict(self._waiting)
        served = dict(self._served)
        serial = self._serial
        result = []
        fitting = self._fitting(resident)
        while left:
            chosen = self._choose(list(left.values()), served, now, fitting, resident_since)
            del left[chosen.number]
            serial += 1
            served[chosen.client] = serial
            if chosen.number not in fitting:
                fitting = set(left)  # what follows is judged without a resident model
            result.append(chosen)
        return result

    def take(self, ticket: Ticket) -> None:
        """The ticket gets the slot: it leaves the queue and its client goes to the end of the round."""
        del self._waiting[ticket.number]
        self._serial += 1
        self._served[ticket.client] = self._serial

    def next_moment(self, now: float, resident: Resident | None, resident_since: float) -> float | None:
        """When the choice may change by time alone: a deadline, a hold's end, an affinity bound."""
        moments = [ticket.deadline for ticket in self._waiting.values()]
        switches = [ticket for ticket in self._waiting.values() if not _fits(ticket, resident)]
        moments += [self._bound(ticket, resident_since) for ticket in switches]
        moments += [hold.expires for hold in self.holds(now)] if self._waiting else []
        if switches and self._last_use is not None:
            moments.append(self._last_use[1] + LINGER)
        return min((moment for moment in moments if moment > now), default=None)

    def _fitting(self, resident: Resident | None) -> set[int]:
        """The numbers of those that need no other model. Found once: an order looks at every client for each place."""
        return {number for number, ticket in self._waiting.items() if _fits(ticket, resident)}

    def _choose(
        self,
        tickets: list[Ticket],
        served: dict[int, int],
        now: float,
        fitting: set[int],
        resident_since: float,
    ) -> Ticket:
        front = [ticket for ticket in tickets if ticket.front]
        if front:
            return min(front, key=lambda ticket: ticket.number)
        level = min(PRIORITY[ticket.kind] for ticket in tickets)
        tickets = [ticket for ticket in tickets if PRIORITY[ticket.kind] == level]
        heads: dict[int, Ticket] = {}
        for ticket in sorted(tickets, key=lambda ticket: ticket.number):
            heads.setdefault(ticket.client, ticket)
        candidates = list(heads.values())
        switches = [ticket for ticket in candidates if ticket.number not in fitting]
        overdue = [ticket for ticket in switches if now >= self._bound(ticket, resident_since)]
        pool = overdue or [ticket for ticket in candidates if ticket.number in fitting] or candidates
        return min(pool, key=lambda ticket: (served[ticket.client], ticket.number))

    def _must_wait(self, ticket: Ticket, now: float, resident: Resident | None, resident_since: float) -> bool:
        """A switch waits for the holds of others, and a moment for their next turn, up to its bound."""
        if resident is None or ticket.front or _fits(ticket, resident) or now >= self._bound(ticket, resident_since):
            return False
        if self._last_use is not None and self._last_use[0] != ticket.client and now < self._last_use[1] + LINGER:
            return True
        return any(hold.client != ticket.client and hold.model == resident.name for hold in self.holds(now))

    def _bound(self, ticket: Ticket, resident_since: float) -> float:
        patience = max(self._settings.affinity_bound, self._settings.affinity_load_factor * ticket.load_seconds)
        return max(ticket.arrived, resident_since) + patience


def _fits(ticket: Ticket, resident: Resident | None) -> bool:
    if resident is None or ticket.wanted is None:
        return True
    return fits(resident, ticket.wanted)


def fits(resident: Resident, wanted: RequestedIdentity) -> bool:
    """Whether `wanted` needs no other model than the one that is resident or on its way."""
    if isinstance(resident, RequestedIdentity):
        return covers(resident, wanted)
    return serves(resident, wanted)


class Uses:
    """Which clients used the resident model lately: whose consent a switch needs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._used: dict[int, tuple[str, float]] = {}

    def used(self, client: int, client_name: str, now: float) -> None:
        """`client` began a turn on the resident model."""
        self._used[client] = (client_name, now)

    def ended(self, client: int, now: float) -> None:
        """Note that its turn ended. A client that has gone meanwhile does not come back by this."""
        if client in self._used:
            self._used[client] = (self._used[client][0], now)

    def drop_client(self, client: int) -> None:
        """The client has gone: a switch hurts it no more."""
        self._used.pop(client, None)

    def forget(self) -> None:
        """The model has gone: a use of it says nothing about the next."""
        self._used.clear()

    def in_use_by(self, client: int, now: float, queue: TurnQueue, resident: ResolvedIdentity) -> list[str]:
        """Names of other clients that used it within the bound, hold it, or wait for it."""
        names: dict[str, None] = {}
        for other, (name, at) in self._used.items():
            if other != client and now - at < self._settings.switch_asks_within:
                names[name] = None
        for hold in queue.holds(now):
            if hold.client != client and hold.model == resident.name:
                names[hold.client_name] = None
        for ticket in queue.waiting:
            if ticket.client != client and ticket.wanted is not None and serves(resident, ticket.wanted):
                names[ticket.client_name] = None
        return list(names)
