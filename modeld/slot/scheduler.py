"""Schedules requests on the slot: admission, waiting, granting and stopping.

Every request is a `ScheduledRequest` with a ticket. A caller's own task only waits for the outcome; the work runs in
a task of the slot, so a caller that vanishes never leaves the slot half way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from modeld.slot.request import identity_of
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from modeld.turn.queue import PRIORITY, Kind, Ticket, TurnQueue, Uses, fits
from shared.diagnosis.defect import where
from shared.errors import ModelBusy, ModeldError, ModelNotActive, ModelSwitchRequired, WaitTimeout
from shared.protocol.api import Event, LoadConfig, OnBusy, Timings, TurnResult, Usage
from shared.protocol.faults import RequestCancelled

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity

Run = Callable[[ScheduledRequest], Awaitable[Any]]
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


class Scheduler:
    """What waits and what has the slot. Owned by the slot, on its loop."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.queue = TurnQueue(slot.settings)
        self.uses = Uses(slot.settings)
        self._requests: dict[int, tuple[ScheduledRequest, Run]] = {}
        self._current: ScheduledRequest | None = None
        self._next_ticket = 0
        self._reported_at = -1e9
        self._report_timer: asyncio.TimerHandle | None = None

    @property
    def current(self) -> ScheduledRequest | None:
        """The work that has the slot."""
        return self._current

    def positions(self) -> list[Ticket]:
        """Who waits, in the order they would be served now."""
        slot = self._slot
        return self.queue.order(slot.now(), slot.resident, slot.resident_since)

    def refuse_waiting(self, error: Callable[[], ModeldError]) -> None:
        """End everything that waits; what runs goes on."""
        for request, _ in list(self._requests.values()):
            if request is not self._current and self.queue.remove(request.ticket.number):
                self._finish_stopped(request, error())

    def stop_all(self, error: Callable[[], ModeldError]) -> None:
        """End everything, what runs included."""
        self.refuse_waiting(error)
        for request, _ in list(self._requests.values()):
            request.stop("", error())

    # --- admission -----------------------------------------------------------------------------

    async def submit(
        self,
        kind: Kind,
        client: Client,
        entry: ModelEntry | None,
        config: LoadConfig,
        permission: Permission,
        emit: Callable[[Event], None],
        run: Callable[[ScheduledRequest], Awaitable[T]],
        on_admitted: Callable[[ScheduledRequest], None] = lambda request: None,
    ) -> T:
        """Queue, then `run` with the slot reserved; its result. Raises the typed errors.

        Cancelling the caller stops the work. `on_admitted` gets it before it waits, to stop it politely.
        """
        wanted = identity_of(entry, config, self._slot.backend) if entry is not None else None
        request = self._admit(kind, client, wanted, entry.name if entry else "", permission, emit)
        self._requests[request.ticket.number] = (request, run)
        on_admitted(request)
        self._slot.schedule()
        try:
            result: T = await request.outcome
        except asyncio.CancelledError:
            self.stop(request)
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
    ) -> ScheduledRequest:
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
        request = ScheduledRequest(
            ticket, emit, allow_load=permission.load, allow_switch=permission.switch, consent=permission.consent
        )
        error = self._refusal(request)
        if error is not None:
            raise error
        if kind == "fill":
            self._drop_older_fills(client.number)
        if self._current is not None:
            self._make_way(self._current, request, permission)
        self.queue.add(ticket)
        return request

    def _make_way(self, current: ScheduledRequest, request: ScheduledRequest, permission: Permission) -> None:
        """What a newcomer does to the work that has the slot. Raises ModelBusy (on_busy fail)."""
        if PRIORITY[request.ticket.kind] < PRIORITY[current.ticket.kind]:
            current.stop("")
        elif permission.on_busy == "cancel" and current.ticket.client != request.ticket.client:
            self._slot.records.audit(
                "cancelled_by_other",
                request.ticket.client_name,
                {"holder": current.ticket.client_name, "operation": current.ticket.kind, "for": request.ticket.model},
            )
            ended = f"the {current.ticket.kind} of {current.ticket.client_name}"
            self._slot.log(f"{request.ticket.client_name} ends {ended}")
            current.stop(request.ticket.client_name)
        elif permission.on_busy == "cancel":
            current.stop("")
        elif permission.on_busy == "fail" and not self._shares_load(request):
            raise self._busy()

    def _drop_older_fills(self, client: int) -> None:
        """The newest fill of a client is the only one that it still wants."""
        for request, _ in list(self._requests.values()):
            if request.ticket.kind == "fill" and request.ticket.client == client:
                self.stop(request)

    def _busy(self) -> ModelBusy:
        current = self._current
        assert current is not None
        return ModelBusy(
            operation=current.ticket.kind,
            holder=current.ticket.client_name,
            since=round(self._slot.now() - current.granted_at, 3),
            queued=len(self.queue),
        )

    def _shares_load(self, request: ScheduledRequest) -> bool:
        """A load of what is being loaded already joins it, whoever began it."""
        load, current = self._slot.machine.state.load, self._current
        if request.ticket.kind != "load" or request.ticket.wanted is None:
            return False
        if load is not None:
            return fits(load.target, request.ticket.wanted)
        # About to be loaded: its file and its memory are still being checked.
        if current is None or current.stage != "preparing" or current.ticket.wanted is None:
            return False
        return fits(current.ticket.wanted, request.ticket.wanted)

    def _refusal(self, request: ScheduledRequest) -> ModeldError | None:
        """Why the work could not be done as things are now, permissions considered."""
        state, ticket = self._slot.machine.state, request.ticket
        if ticket.wanted is None or ticket.kind == "unload":
            return None
        resident = self._slot.resident
        if resident is None:
            return None if request.allow_load else ModelNotActive(requested=ticket.model)
        if fits(resident, ticket.wanted):
            return None
        users: list[str] = []
        if state.active is not None:
            users = self.uses.in_use_by(ticket.client, self._slot.now(), self.queue, state.active)
        if request.allow_switch and (request.consent or not users):
            return None
        return ModelSwitchRequired(active=resident.name, requested=ticket.model, in_use_by=users)

    # --- granting ------------------------------------------------------------------------------

    def grant(self) -> None:
        """Grant the slot if it can be granted, and tell the others their positions."""
        self._expire()
        self._join_loads()
        while self._current is None and not self._slot.frozen and self._grant_one():
            pass
        self._report_positions()

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
        request, run = self._requests[ticket.number]
        error = self._refusal(request)  # things may have changed while it waited
        if error is not None:
            self.queue.remove(ticket.number)
            self._end(request, error)
            return True
        self.queue.take(ticket)
        self._current = request
        self._serve_soon(request, run)
        return True

    def _serve_soon(self, request: ScheduledRequest, run: Run) -> None:
        request.stage = "preparing"
        request.granted_at = self._slot.now()
        self._slot.spawn(self._serve(request, run))

    async def _serve(self, request: ScheduledRequest, run: Run) -> None:
        try:
            if request.stopped.is_set():
                raise Stopped
            result = await run(request)
        except Stopped:
            self._finish_stopped(request, request.reason)
        except ModeldError as error:
            self._end(request, error)
        except Exception as error:  # the slot outlives a defect of one operation
            self._slot.log(f"defect in {request.ticket.kind}: {type(error).__name__} at {where(error)}")
            self._end(request, error)
        else:
            self._end(request, None, result)
        finally:
            if self._current is request:
                self._current = None
            self._slot.signal()
            self._slot.schedule()

    def _join_loads(self) -> None:
        """Loads of what is being loaded already need no turn of their own."""
        for ticket in self.queue.waiting:
            request, run = self._requests[ticket.number]
            if self._current is not None and self._shares_load(request):
                self.queue.take(ticket)
                self._serve_soon(request, run)

    def _expire(self) -> None:
        now = self._slot.now()
        if all(now < ticket.deadline for ticket in self.queue.waiting):
            return
        positions = {ticket.number: place for place, ticket in enumerate(self.positions(), start=1)}
        for ticket in self.queue.expired(now):
            request, _ = self._requests[ticket.number]
            waited = round(now - ticket.arrived, 3)
            self._end(request, WaitTimeout(position=positions[ticket.number], waited_s=waited))

    def _report_positions(self) -> None:
        """A newcomer at once; the others as they move, but not more often than people can see it.

        Reported one by one, 32 waiting editors would cost the turns of a small model a fifth of their time.
        """
        now = self._slot.now()
        due = self._reported_at + self._slot.settings.status_interval
        requests = [self._requests[ticket.number][0] for ticket in self.queue.waiting]
        if not requests:
            return
        if now < due:
            if self._report_timer is None:
                self._report_timer = asyncio.get_running_loop().call_later(due - now, self._report_later)
            if all(request.reported for request in requests):
                return
        else:
            self._reported_at = now
        order = self.queue.order(now, self._slot.resident, self._slot.resident_since)
        ahead = [self._current.ticket.client_name] if self._current is not None else []
        for position, ticket in enumerate(order, start=1):
            request = self._requests[ticket.number][0]
            if now >= due or not request.reported:
                request.place(position, list(ahead))
            ahead.append(ticket.client_name)

    def _report_later(self) -> None:
        self._report_timer = None
        self._report_positions()

    # --- ending --------------------------------------------------------------------------------

    def stop(self, request: ScheduledRequest, by: str = "") -> None:
        """Cancel a piece of work wherever it is."""
        if request.stage == "queued" and self.queue.remove(request.ticket.number):
            request.stop(by)
            self._finish_stopped(request, None)
            self._slot.schedule()
        else:
            request.stop(by)

    def _finish_stopped(self, request: ScheduledRequest, reason: ModeldError | None) -> None:
        reason = reason or request.reason
        if reason is None and request.ticket.kind != "turn":  # only a turn has a result that says "cancelled"
            by = f" by {request.by}" if request.by else ""
            reason = RequestCancelled(f"before the {request.ticket.kind} was done it was ended{by}")
        self._end(request, reason, self.stopped_result(request))

    def stopped_result(self, request: ScheduledRequest) -> TurnResult:
        """What a caller gets whose work never reached the engine."""
        queued = (request.granted_at or self._slot.now()) - request.ticket.arrived
        return TurnResult(
            finish_reason="cancelled_by_other" if request.by else "cancelled",
            model=request.ticket.model,
            usage=Usage(),
            timings=Timings(queued_s=round(queued, 4), load_s=round(request.load_s, 4)),
            generation=self._slot.machine.state.generation,
            by=request.by,
        )

    def _end(self, request: ScheduledRequest, error: BaseException | None, result: Any = None) -> None:
        self._requests.pop(request.ticket.number, None)
        if error is not None:
            request.fail(error)
        else:
            request.succeed(result)
        self._slot.changed()

    def drop_client(self, client: int) -> None:
        """Its connection has closed: its places, holds and running work end."""
        self.queue.drop_client(client)
        self.uses.drop_client(client)
        for request, _ in list(self._requests.values()):
            if request.ticket.client == client:
                request.stop("")
                if request.stage == "queued":
                    self._finish_stopped(request, None)
        self._slot.schedule()
