"""The terminal as the core's face: events to a screen, questions to the person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from acp_bridge.conversations.events import Card, Remark, Said, Shown, Staged, Thought
from acp_bridge.conversations.face import Command, Question, Terminal, ToolFailed
from acp_bridge.faces.terminal.screen import Screen

#: Cards of stages: the screen has the stages themselves, with their times.
_OF_STAGES = ("-load", "-read")

Asker = Callable[[Question], Awaitable[str | None]]


class TerminalFace:
    """Implements `acp_bridge.conversations.face.Face`. Files are those on disk, commands run by themselves."""

    client = "acp-bridge chat"
    reads_files = False
    writes_files = False
    runs_terminals = False

    def __init__(self, screen: Screen, asker: Asker) -> None:
        self.screen = screen
        self._asker = asker

    def show(self, conversation: str, event: Shown) -> None:
        """See Face."""
        if isinstance(event, Said):
            self.screen.text(event.text)
        elif isinstance(event, Thought):
            self.screen.thought(event.text)
        elif isinstance(event, Remark):
            self.screen.remark(event.text)
        elif isinstance(event, Staged):
            self.screen.stage(event)
        elif isinstance(event, Card) and not event.card.endswith(_OF_STAGES):
            self.screen.work("" if event.status in ("completed", "failed") else event.title)

    async def ask(self, conversation: str, question: Question) -> str | None:
        """See Face."""
        self.screen.work("")
        answer = await self._asker(question)
        return answer if any(answer == one.id for one in question.answers) else None

    async def read_file(self, conversation: str, path: str) -> str:
        """See Face. Never called: it is not offered."""
        raise ToolFailed("a terminal gives no files")

    async def write_file(self, conversation: str, path: str, text: str) -> None:
        """See Face. Never called: it is not offered."""
        raise ToolFailed("a terminal writes no files")

    async def open_terminal(self, conversation: str, command: Command) -> Terminal:
        """See Face. Never called: it is not offered."""
        raise ToolFailed("a terminal opens no other")
