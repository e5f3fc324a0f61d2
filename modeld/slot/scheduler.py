"""Admission and granting: who may ask for what, who waits, and who has the slot.

Every wish is a `Work` with a ticket. A caller's own task only waits for the outcome; the work runs in
a task of the slot, so a caller that vanishes never leaves the slot half way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from modeld.slot.job import Stopped, Work
from modeld.slot.request import identity_of
from modeld.turn.queue import PRIORITY, Kind, Ticket, TurnQueue, Uses, fits
from shared.diagnosis.defect import where
from shared.errors import ModelBusy, ModeldError, ModelNotActive, ModelSwitchRequired, WaitTimeout
from shared.protocol.api import Event, LoadConfig, OnBusy, Timings, TurnResult, Usage
from shared.protocol.faults import RequestCancelled

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity

Run = Callable[[Work], Awaitable[Any]]
T = TypeVar("T")


class Client:
    """Who asks: `number` identifies the connection, `name` is for people."""

    __slots__ = ("name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name


class Permission:
    """What a caller allows: to load into an empty slot, to switch, to hurt another client, and how to wait."""

    __slots__ = ("consent", "load", "on_busy", "switch", "wait_s")

    def __init__(
        self,
        *,
        load: bool = False,
        switch: bool = False,
        consent: bool = False,
        on_busy: OnBusy = "wait",
        wait_s: float | None = None,
    ) -> None:
        self.load = load
        self.switch = switch
        self.consent = consent
        self.on_busy = on_busy
        self.wait_s = wait_s


class Desk:
    """What waits and what has the slot. Owned by the slot, on its loop."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.queue = TurnQueue(slot.settings)
        self.uses = Uses(slot.settings)
        self._works: dict[int, tuple[Work, Run]] = {}
        self._current: Work | None = None
        self._next_ticket = 0
        self._told_at = -1e9
        self._teller: asyncio.TimerHandle | None = None

    @property
    def current(self) -> Work | None:
        """The work that has the slot."""
        return self._current

    def places(self) -> list[Ticket]:
        """Who waits, in the order they would be served now."""
        slot = self._slot
        return self.queue.order(slot.now(), slot.resident, slot.resident_since)

    def refuse_waiting(self, error: Callable[[], ModeldError]) -> None:
        """End everything that waits; what runs goes on."""
        for work, _ in list(self._works.values()):
            if work is not self._current and self.queue.remove(work.ticket.number):
                self._finish_stopped(work, error())

    def stop_all(self, error: Callable[[], ModeldError]) -> None:
        """End everything, what runs included."""
        self.refuse_waiting(error)
        for work, _ in list(self._works.values()):
            work.stop("", error())

    # --- admission -----------------------------------------------------------------------------

    async def perform(
        self,
        kind: Kind,
        client: Client,
        entry: ModelEntry | None,
        config: LoadConfig,
        permission: Permission,
        emit: Callable[[Event], None],
        run: Callable[[Work], Awaitable[T]],
        on_work: Callable[[Work], None] = lambda work: None,
    ) -> T:
        """Queue, then `run` with the slot reserved; its result. Raises the typed errors.

        Cancelling the caller stops the work. `on_work` gets it before it waits, to stop it politely.
        """
        wanted = identity_of(entry, config, self._slot.backend) if entry is not None else None
        work = self._admit(kind, client, wanted, entry.name if entry else "", permission, emit)
        self._works[work.ticket.number] = (work, run)
        on_work(work)
        self._slot.schedule()
        try:
            result: T = await work.outcome
        except asyncio.CancelledError:
            self.stop(work)
            raise
        return result

    def _admit(
        self,
        kind: Kind,
        client: Client,
        wanted: RequestedIdentity | None,
        model: str,
        permission: Permission,
        emit: Callable[[Event], None],
    ) -> Work:
        self._next_ticket += 1
        now = self._slot.now()
        wait = self._slot.settings.queue_wait if permission.wait_s is None else permission.wait_s
        ticket = Ticket(
            number=self._next_ticket,
            client=client.number,
            client_name=client.name,
            kind=kind,
            model=model,
            wanted=wanted,
            arrived=now,
            deadline=now + max(wait, 0.0),
            load_seconds=self._slot.loads.seconds.get(model, 0.0),
            front=permission.on_busy == "cancel",
        )
        work = Work(
            ticket, emit, allow_load=permission.load, allow_switch=permission.switch, consent=permission.consent
        )
        error = self._refusal(work)
        if error is not None:
            raise error
        if kind == "fill":
            self._drop_older_fills(client.number)
        if self._current is not None:
            self._make_way(self._current, work, permission)
        self.queue.add(ticket)
        return work

    def _make_way(self, current: Work, work: Work, permission: Permission) -> None:
        """What a newcomer does to the work that has the slot. Raises ModelBusy (on_busy fail)."""
        if PRIORITY[work.ticket.kind] < PRIORITY[current.ticket.kind]:
            current.stop("")
        elif permission.on_busy == "cancel" and current.ticket.client != work.ticket.client:
            self._slot.records.audit(
                "cancelled_by_other",
                work.ticket.client_name,
                {"holder": current.ticket.client_name, "operation": current.ticket.kind, "for": work.ticket.model},
            )
            self._slot.log(f"{work.ticket.client_name} ends the {current.ticket.kind} of {current.ticket.client_name}")
            current.stop(work.ticket.client_name)
        elif permission.on_busy == "cancel":
            current.stop("")
        elif permission.on_busy == "fail" and not self._shares_load(work):
            raise self._busy()

    def _drop_older_fills(self, client: int) -> None:
        """The newest fill of a client is the only one that it still wants."""
        for work, _ in list(self._works.values()):
            if work.ticket.kind == "fill" and work.ticket.client == client:
                self.stop(work)

    def _busy(self) -> ModelBusy:
        current = self._current
        assert current is not None
        return ModelBusy(
            operation=current.ticket.kind,
            holder=current.ticket.client_name,
            since=round(self._slot.now() - current.granted_at, 3),
            queued=len(self.queue),
        )

    def _shares_load(self, work: Work) -> bool:
        """A load of what is being loaded already joins it, whoever began it."""
        load, current = self._slot.machine.state.load, self._current
        if work.ticket.kind != "load" or work.ticket.wanted is None:
            return False
        if load is not None:
            return fits(load.target, work.ticket.wanted)
        # About to be loaded: its file and its memory are still being checked.
        if current is None or current.stage != "preparing" or current.ticket.wanted is None:
            return False
        return fits(current.ticket.wanted, work.ticket.wanted)

    def _refusal(self, work: Work) -> ModeldError | None:
        """Why the work could not be done as things are now, permissions considered."""
        state, ticket = self._slot.machine.state, work.ticket
        if ticket.wanted is None or ticket.kind == "unload":
            return None
        resident = self._slot.resident
        if resident is None:
            return None if work.allow_load else ModelNotActive(requested=ticket.model)
        if fits(resident, ticket.wanted):
            return None
        users: list[str] = []
        if state.active is not None:
            users = self.uses.in_use_by(ticket.client, self._slot.now(), self.queue, state.active)
        if work.allow_switch and (work.consent or not users):
            return None
        return ModelSwitchRequired(active=resident.name, requested=ticket.model, in_use_by=users)

    # --- granting ------------------------------------------------------------------------------

    def grant(self) -> None:
        """Grant the slot if it can be granted, and tell the others their places."""
        self._expire()
        self._join_loads()
        while self._current is None and not self._slot.frozen and self._grant_one():
            pass
        self._tell_places()

    def _grant_one(self) -> bool:
        state = self._slot.machine.state
        if state.name in ("Busy", "LostOwner", "ShuttingDown"):
            return False
        resident = self._slot.resident
        ticket = self.queue.next(self._slot.now(), resident, self._slot.resident_since)
        if ticket is None:
            return False
        load = state.load
        if load is not None and load.callers and not (ticket.wanted and fits(load.target, ticket.wanted)):
            return False  # somebody waits for that load; the switch comes after it
        work, run = self._works[ticket.number]
        error = self._refusal(work)  # things may have changed while it waited
        if error is not None:
            self.queue.remove(ticket.number)
            self._end(work, error)
            return True
        self.queue.take(ticket)
        self._current = work
        self._serve_soon(work, run)
        return True

    def _serve_soon(self, work: Work, run: Run) -> None:
        work.stage = "preparing"
        work.granted_at = self._slot.now()
        self._slot.spawn(self._serve(work, run))

    async def _serve(self, work: Work, run: Run) -> None:
        try:
            if work.stopped.is_set():
                raise Stopped
            result = await run(work)
        except Stopped:
            self._finish_stopped(work, work.reason)
        except ModeldError as error:
            self._end(work, error)
        except Exception as error:  # the slot outlives a defect of one operation
            self._slot.log(f"defect in {work.ticket.kind}: {type(error).__name__} at {where(error)}")
            self._end(work, error)
        else:
            self._end(work, None, result)
        finally:
            if self._current is work:
                self._current = None
            self._slot.signal()
            self._slot.schedule()

    def _join_loads(self) -> None:
        """Loads of what is being loaded already need no turn of their own."""
        for ticket in self.queue.waiting:
            work, run = self._works[ticket.number]
            if self._current is not None and self._shares_load(work):
                self.queue.take(ticket)
                self._serve_soon(work, run)

    def _expire(self) -> None:
        now = self._slot.now()
        if all(now < ticket.deadline for ticket in self.queue.waiting):
            return
        places = {ticket.number: place for place, ticket in enumerate(self.places(), start=1)}
        for ticket in self.queue.expired(now):
            work, _ = self._works[ticket.number]
            waited = round(now - ticket.arrived, 3)
            self._end(work, WaitTimeout(position=places[ticket.number], waited_s=waited))

    def _tell_places(self) -> None:
        """A newcomer at once; the others as they move, but not more often than people can see it.

        Told one by one, 32 waiting editors would cost the turns of a small model a fifth of their time.
        """
        now = self._slot.now()
        due = self._told_at + self._slot.settings.status_interval
        works = [self._works[ticket.number][0] for ticket in self.queue.waiting]
        if not works:
            return
        if now < due:
            if self._teller is None:
                self._teller = asyncio.get_running_loop().call_later(due - now, self._tell_later)
            if all(work.told for work in works):
                return
        else:
            self._told_at = now
        order = self.queue.order(now, self._slot.resident, self._slot.resident_since)
        ahead = [self._current.ticket.client_name] if self._current is not None else []
        for position, ticket in enumerate(order, start=1):
            work = self._works[ticket.number][0]
            if now >= due or not work.told:
                work.place(position, list(ahead))
            ahead.append(ticket.client_name)

    def _tell_later(self) -> None:
        self._teller = None
        self._tell_places()

    # --- ending --------------------------------------------------------------------------------

    def stop(self, work: Work, by: str = "") -> None:
        """Cancel a piece of work wherever it is."""
        if work.stage == "queued" and self.queue.remove(work.ticket.number):
            work.stop(by)
            self._finish_stopped(work, None)
            self._slot.schedule()
        else:
            work.stop(by)

    def _finish_stopped(self, work: Work, reason: ModeldError | None) -> None:
        reason = reason or work.reason
        if reason is None and work.ticket.kind != "turn":  # only a turn has a result that says "cancelled"
            by = f" by {work.by}" if work.by else ""
            reason = RequestCancelled(f"before the {work.ticket.kind} was done it was ended{by}")
        self._end(work, reason, self.stopped_result(work))

    def stopped_result(self, work: Work) -> TurnResult:
        """What a caller gets whose work never reached the engine."""
        queued = (work.granted_at or self._slot.now()) - work.ticket.arrived
        return TurnResult(
            finish_reason="cancelled_by_other" if work.by else "cancelled",
            model=work.ticket.model,
            usage=Usage(),
            timings=Timings(queued_s=round(queued, 4), load_s=round(work.load_s, 4)),
            generation=self._slot.machine.state.generation,
            by=work.by,
        )

    def _end(self, work: Work, error: BaseException | None, result: Any = None) -> None:
        self._works.pop(work.ticket.number, None)
        if error is not None:
            work.fail(error)
        else:
            work.succeed(result)
        self._slot.changed()

    def drop_client(self, client: int) -> None:
        """Its connection has closed: its places, holds and running work end."""
        self.queue.drop_client(client)
        self.uses.drop_client(client)
        for work, _ in list(self._works.values()):
            if work.ticket.client == client:
                work.stop("")
                if work.stage == "queued":
                    self._finish_stopped(work, None)
        self._slot.schedule()
