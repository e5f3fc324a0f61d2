"""Joins the events of one turn so that the token path stays cheap: what is written less often costs less."""

from __future__ import annotations

import time
from collections.abc import Callable

from shared.protocol.api import Event, Generating, ReasoningDelta, TextDelta, Thinking, ToolCallDelta

#: The first event leaves at once; later ones wait for company this long (seconds). A screen shows 60
#: frames a second, and each message costs the daemon and the bridge time that decode needs too.
JOIN_SECONDS = 0.04


class EventStream:
    """Collects events and hands joined lists to `send`; deltas of one kind become one delta.

    `on_stage` hears of `thinking` and `generating` as the parser says them.
    """

    __slots__ = ("_clock", "_interval", "_last", "_on_stage", "_pending", "_send")

    def __init__(
        self,
        send: Callable[[list[Event]], None],
        on_stage: Callable[[str], None],
        interval: float = JOIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._on_stage = on_stage
        self._interval = interval
        self._clock = clock
        self._pending: list[Event] = []
        self._last = -interval

    def add(self, events: list[Event]) -> None:
        """Queue events; what has waited long enough is sent."""
        for event in events:
            self._take(event)
        now = self._clock()
        if now - self._last >= self._interval:
            self._last = now
            self._flush()

    def say(self, event: Event) -> None:
        """Send one stage event now, behind all that waits."""
        self._pending.append(event)
        self._flush()

    def finish(self) -> None:
        """Send what waits."""
        if self._pending:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._send(pending)

    def _take(self, event: Event) -> None:
        if isinstance(event, (Thinking, Generating)):
            self._on_stage("thinking" if isinstance(event, Thinking) else "generating")
        if not self._pending or not _joined(self._pending, event):
            self._pending.append(event)


def _joined(pending: list[Event], event: Event) -> bool:
    last = pending[-1]
    if isinstance(event, TextDelta) and isinstance(last, TextDelta):
        pending[-1] = TextDelta(text=last.text + event.text)
    elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
        pending[-1] = ReasoningDelta(text=last.text + event.text)
    elif isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta) and event.index == last.index:
        arguments = last.arguments + event.arguments
        pending[-1] = ToolCallDelta(index=last.index, id=last.id, name=last.name or event.name, arguments=arguments)
    else:
        return False
    return True
