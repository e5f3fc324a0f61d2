"""The stages of a turn as cards a user can watch: waiting, loading, reading.

Pure. One card a stage, opened when the stage is worth showing, closed when the next begins. Cards of stages are shown
and not saved: a replayed conversation holds what was said, not how long it took.
"""

from __future__ import annotations

from acp_bridge.conversations.events import Card, CardStatus
from shared.protocol.api import Event, Loading, Prefill, Prefix, Queued

#: Fewer new tokens than this are read before anybody could read the card.
PREFILL_SHOWN_TOKENS = 1500


class Stages:
    """Turns daemon events into cards. `turn` makes the card ids unique; `model` is the one that loads are named by."""

    def __init__(self, turn: str, model: str) -> None:
        self._turn = turn
        self.model = model
        self._open: Card | None = None
        self._reused = 0
        self._count = 0

    def see(self, event: Event) -> list[Card]:
        """The cards to show for this event, in order."""
        if isinstance(event, Queued):
            return self._show("wait", queue_title(event.position, event.ahead))
        if isinstance(event, Loading):
            return self._show("load", loading_title(event.model or self.model, event.fraction, event.unloads))
        if isinstance(event, Prefix):
            self._reused = event.reused
            return self.close("completed")
        if isinstance(event, Prefill):
            return self._prefill(event)
        return self.close("completed")

    def waiting(self, title: str) -> list[Card]:
        """A wait that the bridge itself makes (for a restarting daemon, say)."""
        return self._show("wait", title)

    def close(self, status: CardStatus) -> list[Card]:
        """End the open card, if any."""
        if self._open is None:
            return []
        card, self._open = self._open, None
        return [Card(card=card.card, title=_plain(card.title), kind=card.kind, status=status)]

    def _prefill(self, event: Prefill) -> list[Card]:
        if event.total - self._reused < PREFILL_SHOWN_TOKENS:
            return self.close("completed")
        return self._show("read", f"Reading the conversation ({event.done:,} of {event.total:,} tokens)")

    def _show(self, stage: str, title: str) -> list[Card]:
        if self._open is not None and self._open.card.endswith(stage):
            if self._open.title == title:
                return []
            self._open = Card(card=self._open.card, title=title, status="in_progress")
            return [self._open]
        ended = self.close("completed")
        self._count += 1
        self._open = Card(card=f"{self._turn}-{self._count}-{stage}", title=title, status="in_progress")
        return [*ended, self._open]


def queue_title(position: int, ahead: list[str]) -> str:
    """`ahead` names the clients in front."""
    behind = f", behind {', '.join(dict.fromkeys(ahead))}" if ahead else ""
    return f"Waiting for the model (place {position}{behind})"


def loading_title(model: str, fraction: float, unloads: str) -> str:
    """`fraction` from 0 to 1."""
    room = f", unloading {unloads}" if unloads else ""
    return f"Loading {model} ({int(fraction * 100)} %{room})"


def _plain(title: str) -> str:
    """The title without its progress, for the closed card."""
    return title.partition(" (")[0]
