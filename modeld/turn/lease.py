"""Leases of running turns and jobs; inert after their end. Pure; times in awake seconds.

Nothing can advance an operation without its lease, and an ended lease does nothing, so an event that
comes late cannot bring back what it belonged to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from shared.protocol.api import (
    Event,
    Generating,
    Loading,
    Prefill,
    Prefix,
    ReasoningDelta,
    TextDelta,
    Thinking,
    ToolCallDelta,
)


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """What others see of a lease. `pin` is the engine's number of the work, None while unknown.

    `on_engine`: the resident engine does it, so its account can confirm or contradict the lease.
    """

    number: int
    operation: str
    holder: str
    stage: str
    started: float
    last_signal: float
    strikes: int
    pin: int | None
    detail: dict[str, Any]
    pid: int = 0
    start_token: str = ""
    on_engine: bool = True


class _Entry:
    __slots__ = (
        "detail",
        "holder",
        "last_signal",
        "on_engine",
        "operation",
        "pid",
        "pin",
        "stage",
        "start_token",
        "started",
        "strikes",
    )

    def __init__(self, operation: str, holder: str, stage: str, now: float, *, on_engine: bool) -> None:
        self.operation = operation
        self.holder = holder
        self.stage = stage
        self.started = self.last_signal = now
        self.strikes = 0
        self.pin: int | None = None
        self.detail: dict[str, Any] = {}
        self.pid = 0
        self.start_token = ""
        self.on_engine = on_engine


class TurnLease:
    """The right to advance one operation. Every method does nothing after `end`."""

    def __init__(self, table: LeaseTable, number: int) -> None:
        self._table = table
        self.number = number
        self.open = True

    def stage(self, stage: str, now: float, **detail: Any) -> None:
        """The operation reached `stage`."""
        if self.open:
            self._table.advance(self.number, stage, now, detail)

    def observe(self, event: Event, now: float) -> None:
        """Learn the stage from an event of the engine."""
        if self.open:
            stage, detail = stage_of(event)
            self._table.advance(self.number, stage, now, detail)

    def pin(self, number: int, now: float) -> None:
        """The engine runs it under this number."""
        if self.open:
            self._table.pin(self.number, number, now)

    def process(self, pid: int, start_token: str) -> None:
        """The process that does it, provable against reuse of the pid."""
        if self.open:
            self._table.process(self.number, pid, start_token)

    def end(self) -> None:
        """Give it back; a second time does nothing."""
        if self.open:
            self.open = False
            self._table.drop(self.number)


class LeaseTable:
    """All leases of this instance. `changed` is called when a stage, a pin or the set changes."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._entries: dict[int, _Entry] = {}
        self._next = 0
        self._changed = changed

    def begin(
        self, operation: str, holder: str, now: float, stage: str = "queued", *, on_engine: bool = True
    ) -> TurnLease:
        """Mint a lease; its number is new within this instance."""
        self._next += 1
        self._entries[self._next] = _Entry(operation, holder, stage, now, on_engine=on_engine)
        self._tell()
        return TurnLease(self, self._next)

    @contextmanager
    def job(self, operation: str, holder: str, now: float, stage: str = "running") -> Iterator[TurnLease]:
        """A lease of work that no resident engine does (a pull, a plan): it ends with the block."""
        lease = self.begin(operation, holder, now, stage, on_engine=False)
        try:
            yield lease
        finally:
            lease.end()

    def view(self, number: int) -> LeaseView | None:
        """One lease, or None when it has ended."""
        entry = self._entries.get(number)
        if entry is None:
            return None
        fields = {name: getattr(entry, name) for name in _Entry.__slots__}
        return LeaseView(number=number, **fields)

    def views(self) -> list[LeaseView]:
        """All that are open."""
        return [view for number in self._entries if (view := self.view(number)) is not None]

    def forget_pins(self) -> None:
        """The worker was replaced: a pin of the old process is evidence of nothing."""
        pinned = [entry for entry in self._entries.values() if entry.pin is not None]
        for entry in pinned:
            entry.pin = None
        if pinned:
            self._tell()

    # --- for the lease and the reaper ----------------------------------------------------------

    def advance(self, number: int, stage: str, now: float, detail: dict[str, Any]) -> None:
        """Any signal proves life; only a change is reported."""
        entry = self._entries.get(number)
        if entry is None:
            return
        entry.last_signal, entry.strikes = now, 0
        entry.detail = detail
        if stage != entry.stage:
            entry.stage = stage
            self._tell()

    def pin(self, number: int, pin: int, now: float) -> None:
        """See TurnLease.pin."""
        entry = self._entries.get(number)
        if entry is not None and entry.pin != pin:
            entry.pin, entry.last_signal, entry.strikes = pin, now, 0
            self._tell()

    def process(self, number: int, pid: int, start_token: str) -> None:
        """See TurnLease.process."""
        entry = self._entries.get(number)
        if entry is not None:
            entry.pid, entry.start_token = pid, start_token

    def strike(self, number: int, strikes: int) -> None:
        """The reaper's count of contradictions."""
        entry = self._entries.get(number)
        if entry is not None:
            entry.strikes = strikes

    def drop(self, number: int) -> None:
        """Forget a lease."""
        if self._entries.pop(number, None) is not None:
            self._tell()

    def _tell(self) -> None:
        self._changed()


def stage_of(event: Event) -> tuple[str, dict[str, Any]]:
    """The stage an event proves, and its numbers. Deltas prove it too, should an opening event be lost."""
    match event:
        case Loading():
            return "loading", {"fraction": event.fraction}
        case Prefix():
            return "prefix", {"reused": event.reused, "total": event.total}
        case Prefill():
            return "prefill", {"done": event.done, "total": event.total}
        case Thinking() | ReasoningDelta():
            return "thinking", {}
        case Generating() | TextDelta() | ToolCallDelta():
            return "generating", {}
        case _:
            return "queued", {}
