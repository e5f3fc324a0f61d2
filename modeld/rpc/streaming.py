"""What a method that runs for a while shares: its events to the client, and its cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shared.protocol.api import Event, EventParams

if TYPE_CHECKING:
    from modeld.slot.scheduled_request import ScheduledRequest
    from modeld.slot.scheduler import Scheduler
    from shared.protocol.requests import Call


def events_of(call: Call) -> Callable[[Event], None]:
    """Sends the events of this call. Never waits: a client that stops reading is ended by its connection."""
    identifier = call.id

    def emit(event: Event) -> None:
        if identifier is not None:
            call.peer.notify("session/event", EventParams(request=identifier, event=event))

    return emit


class Stopper:
    """Takes the cancel of a call over: the work is stopped and answers by itself with how far it came."""

    def __init__(self, scheduler: Scheduler, call: Call) -> None:
        self._scheduler = scheduler
        self.emit = events_of(call)
        self._request: ScheduledRequest | None = None
        self._stopped = False
        call.on_cancel(self._stop)

    def attach(self, request: ScheduledRequest) -> None:
        """The work exists now; a cancel that came before stops it at once."""
        self._request = request
        if self._stopped:
            self._scheduler.stop(request)

    def _stop(self) -> None:
        self._stopped = True
        if self._request is not None:
            self._scheduler.stop(self._request)
