"""Writes a conversation as it happens: every event at once, growing text twice a second."""

from __future__ import annotations

from typing import Literal

from acp_bridge.conversations.events import Card, Said, Saved, Thought
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import Store
from shared.clock import Clock

#: Text of the model is on disk at the latest after this many seconds.
FLUSH_S = 0.5


class Recorder:
    """Keeps the conversation's events and the store in step. Touched only from the loop's thread."""

    def __init__(self, conversation: Conversation, store: Store, clock: Clock) -> None:
        self.conversation = conversation
        self._store = store
        self._clock = clock
        self._pieces: list[str] = []
        self._growing: tuple[Literal["said", "thought"], str, int] | None = None
        self._dirty = False
        self._cards: dict[str, int] = {}

    def add(self, event: Saved) -> None:
        """Save an event. A card that is known already replaces its earlier state."""
        self.settle()
        events = self.conversation.events
        if isinstance(event, Card) and event.card in self._cards:
            place = self._cards[event.card]
            events[place] = event
        else:
            place = len(events)
            events.append(event)
        if isinstance(event, Card):
            self._cards[event.card] = place
        self._store.put(self.conversation.id, place, event)

    def grow(self, kind: Literal["said", "thought"], message: str, text: str) -> None:
        """Add a piece to the text of `message`."""
        if self._growing is None or self._growing[:2] != (kind, message):
            self.settle()
            place = len(self.conversation.events)
            self._growing = (kind, message, place)
            self.conversation.events.append(_text(kind, message, ""))
        self._pieces.append(text)
        self._dirty = True

    def flush(self) -> None:
        """Write the text that has grown since."""
        if self._growing is None or not self._dirty:
            return
        kind, message, place = self._growing
        event = _text(kind, message, "".join(self._pieces))
        self._pieces = [event.text]
        self._dirty = False
        self.conversation.events[place] = event
        self._store.put(self.conversation.id, place, event)

    def settle(self) -> None:
        """The text is complete: write it and start over."""
        self.flush()
        self._growing = None
        self._pieces = []

    async def saved(self) -> None:
        """Wait until all of it is on disk. Raises the typed error of what could not be written."""
        self.settle()
        await self._store.pay()

    def touch(self) -> None:
        """Save the conversation's own row with a new time."""
        self.conversation.updated = self._clock.wall()
        self._store.save(self.conversation)


def _text(kind: Literal["said", "thought"], message: str, text: str) -> Said | Thought:
    return Said(message=message, text=text) if kind == "said" else Thought(message=message, text=text)
