"""Schedules requests on the slot: admission, waiting, granting and stopping.

Every request is a `ScheduledRequest` with a ticket. A caller's own task only waits for the outcome; the work runs in
a task of the slot, so a caller that vanishes never leaves the slot half way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from modeld.slot.request import identity_of
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from modeld.turn.queue import PRIORITY, Kind, Ticket, TurnQueue, Uses, fits
from shared.diagnosis.defect import where
from shared.errors import ModelBusy, ModeldError, ModelNotActive, ModelSwitchRequired, WaitTimeout
from shared.protocol.api import Event, LoadConfig
from shared.protocol.faults import RequestCancelled

if TYPE_CHECKING:
    from modeld.slot.caller import Client, Permission
    from modeld.slot.loop import Loop
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity
    from shared.settings import Settings

Run = Callable[[ScheduledRequest], Awaitable[Any]]
T = TypeVar("T")


class Scheduler:
    """What waits and what has the slot. It acts on the slot through the loop alone.

    `audit` records what one client does to another; `load_seconds` is what loads took, by model; `changed` hears of
    every end; `is_connected` says whether a client is still there.
    """

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        *,
        backend: str,
        audit: Callable[[str, str, dict[str, object]], None],
        load_seconds: Mapping[str, float],
        changed: Callable[[], None],
        is_connected: Callable[[int], bool],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._backend = backend
        self._audit = audit
        self._load_seconds = load_seconds
        self._changed = changed
        self._is_connected = is_connected
        self._queue = TurnQueue(settings)
        self._uses = Uses(settings)
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
        return self._queue.order(self._loop.now(), self._loop.resident, self._loop.resident_since)

    def wanted(self) -> bool:
        """Whether somebody has, waits for or holds the slot."""
        return self._current is not None or bool(len(self._queue) or self._queue.holds(self._loop.now()))

    def next_moment(self) -> float | None:
        """When time alone changes what can be granted, or ends a hold, in awake seconds."""
        now = self._loop.now()
        moments = [
            self._queue.next_moment(now, self._loop.resident, self._loop.resident_since),
            *(hold.expires for hold in self._queue.holds(now)),
        ]
        return min((one for one in moments if one is not None), default=None)

    # --- who uses the resident model -------------------------------------------------------------

    def turn_began(self, client: int, name: str) -> None:
        """Note that a turn of that client runs on the resident model."""
        self._uses.used(client, name, self._loop.now())

    def turn_ended(self, client: int) -> None:
        """Note that the turn has ended; the next one of that client is often on its way."""
        self._uses.ended(client, self._loop.now())
        if self._is_connected(client):
            self._queue.note_use(client, self._loop.now())

    def forget_use(self) -> None:
        """The resident model has gone."""
        self._uses.forget()
        self._queue.forget_use()

    def hold(self, client: Client, model: str, run: str) -> None:
        """Keep the model for the next turn of a run, until its ttl."""
        self._queue.hold(client.number, client.name, model, run, self._loop.now())
        self._loop.wake()

    def release(self, client: Client, run: str) -> None:
        """The run has ended."""
        self._queue.release(client.number, run)
        self._loop.wake()

    def refuse_waiting(self, error: Callable[[], ModeldError]) -> None:
        """End everything that waits; what runs goes on."""
        for request, _ in list(self._requests.values()):
            if request is not self._current and self._queue.remove(request.ticket.number):
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
        wanted = identity_of(entry, config, self._backend) if entry is not None else None
        request = self._admit(kind, client, wanted, entry.name if entry else "", permission, emit)
        self._requests[request.ticket.number] = (request, run)
        on_admitted(request)
        self._loop.wake()
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
        now = self._loop.now()
        wait = self._settings.queue_wait if permission.wait_s is None else permission.wait_s
        ticket = Ticket(
            number=self._next_ticket,
            client=client.number,
            client_name=client.name,
            kind=kind,
            model=model,
            wanted=wanted,
            arrived=now,
            deadline=now + max(wait, 0.0),
            load_seconds=self._load_seconds.get(model, 0.0),
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
        self._queue.add(ticket)
        return request

    def _make_way(self, current: ScheduledRequest, request: ScheduledRequest, permission: Permission) -> None:
        """What a newcomer does to the work that has the slot. Raises ModelBusy (on_busy fail)."""
        if PRIORITY[request.ticket.kind] < PRIORITY[current.ticket.kind]:
            current.stop("")
        elif permission.on_busy == "cancel" and current.ticket.client != request.ticket.client:
            self._audit(
                "cancelled_by_other",
                request.ticket.client_name,
                {"holder": current.ticket.client_name, "operation": current.ticket.kind, "for": request.ticket.model},
            )
            ended = f"the {current.ticket.kind} of {current.ticket.client_name}"
            self._loop.log(f"{request.ticket.client_name} ends {ended}")
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
            since=round(self._loop.now() - current.granted_at, 3),
            queued=len(self._queue),
        )

    def _shares_load(self, request: ScheduledRequest) -> bool:
        """A load of what is being loaded already joins it, whoever began it."""
        load, current = self._loop.state.load, self._current
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
        state, ticket = self._loop.state, request.ticket
        if ticket.wanted is None or ticket.kind == "unload":
            return None
        resident = self._loop.resident
        if resident is None:
            return None if request.allow_load else ModelNotActive(requested=ticket.model)
        if fits(resident, ticket.wanted):
            return None
        users: list[str] = []
        if state.active is not None:
            users = self._uses.in_use_by(ticket.client, self._loop.now(), self._queue, state.active)
        if request.allow_switch and (request.consent or not users):
            return None
        return ModelSwitchRequired(active=resident.name, requested=ticket.model, in_use_by=users)

    # --- granting ------------------------------------------------------------------------------

    def grant(self) -> None:
        """Grant the slot if it can be granted, and tell the others their positions."""
        self._expire()
        self._join_loads()
        while self._current is None and not self._loop.frozen and self._grant_one():
            pass
        self._report_positions()

    def _grant_one(self) -> bool:
        state = self._loop.state
        if state.name in ("Busy", "LostOwner", "ShuttingDown"):
            return False
        resident = self._loop.resident
        ticket = self._queue.next(self._loop.now(), resident, self._loop.resident_since)
        if ticket is None:
            return False
        load = state.load
        if load is not None and load.callers and not (ticket.wanted and fits(load.target, ticket.wanted)):
            return False  # somebody waits for that load; the switch comes after it
        request, run = self._requests[ticket.number]
        error = self._refusal(request)  # things may have changed while it waited
        if error is not None:
            self._queue.remove(ticket.number)
            self._end(request, error)
            return True
        self._queue.take(ticket)
        self._current = request
        self._serve_soon(request, run)
        return True

    def _serve_soon(self, request: ScheduledRequest, run: Run) -> None:
        request.stage = "preparing"
        request.granted_at = self._loop.now()
        self._loop.spawn(self._serve(request, run))

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
            self._loop.log(f"defect in {request.ticket.kind}: {type(error).__name__} at {where(error)}")
            self._end(request, error)
        else:
            self._end(request, None, result)
        finally:
            if self._current is request:
                self._current = None
            self._loop.wake()

    def _join_loads(self) -> None:
        """Loads of what is being loaded already need no turn of their own."""
        for ticket in self._queue.waiting:
            request, run = self._requests[ticket.number]
            if self._current is not None and self._shares_load(request):
                self._queue.take(ticket)
                self._serve_soon(request, run)

    def _expire(self) -> None:
        now = self._loop.now()
        if all(now < ticket.deadline for ticket in self._queue.waiting):
            return
        positions = {ticket.number: place for place, ticket in enumerate(self.positions(), start=1)}
        for ticket in self._queue.expired(now):
            request, _ = self._requests[ticket.number]
            waited = round(now - ticket.arrived, 3)
            self._end(request, WaitTimeout(position=positions[ticket.number], waited_s=waited))

    def _report_positions(self) -> None:
        """A newcomer at once; the others as they move, but not more often than people can see it.

        Reported one by one, 32 waiting editors would cost the turns of a small model a fifth of their time.
        """
        now = self._loop.now()
        due = self._reported_at + self._settings.status_interval
        requests = [self._requests[ticket.number][0] for ticket in self._queue.waiting]
        if not requests:
            return
        if now < due:
            if self._report_timer is None:
                self._report_timer = asyncio.get_running_loop().call_later(due - now, self._report_later)
            if all(request.reported for request in requests):
                return
        else:
            self._reported_at = now
        order = self._queue.order(now, self._loop.resident, self._loop.resident_since)
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
        if request.stage == "queued" and self._queue.remove(request.ticket.number):
            request.stop(by)
            self._finish_stopped(request, None)
            self._loop.wake()
        else:
            request.stop(by)

    def _finish_stopped(self, request: ScheduledRequest, reason: ModeldError | None) -> None:
        reason = reason or request.reason
        if reason is None and request.ticket.kind != "turn":  # only a turn has a result that says "cancelled"
            by = f" by {request.by}" if request.by else ""
            reason = RequestCancelled(f"before the {request.ticket.kind} was done it was ended{by}")
        self._end(request, reason, request.stopped_result(self._loop.now(), self._loop.state.generation))

    def _end(self, request: ScheduledRequest, error: BaseException | None, result: Any = None) -> None:
        self._requests.pop(request.ticket.number, None)
        if error is not None:
            request.fail(error)
        else:
            request.succeed(result)
        self._changed()

    def drop_client(self, client: int) -> None:
        """End the places, holds and work of a client whose connection has closed."""
        self._queue.drop_client(client)
        self._uses.drop_client(client)
        for request, _ in list(self._requests.values()):
            if request.ticket.client == client:
                request.stop("")
                if request.stage == "queued":
                    self._finish_stopped(request, None)
        self._loop.wake()
