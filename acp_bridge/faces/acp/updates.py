"""Events of the core as updates of the protocol. Pure, but for remembering which cards the editor has seen.

No text from outside acts in them: some editors read titles, remarks and the texts of cards as Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from acp_bridge.conversations.commands import COMMANDS
from acp_bridge.conversations.events import (
    Card,
    Change,
    FileLocation,
    Item,
    PlanSet,
    Remark,
    Said,
    Shown,
    TextItem,
    Thought,
    Titled,
    Used,
    UserSaid,
)
from acp_bridge.faces.acp.content import block_of
from acp_bridge.faces.acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AnyUpdate,
    AvailableCommand,
    AvailableCommandsUpdate,
    CardItem,
    CommandInput,
    ContentItem,
    DiffItem,
    Location,
    PlanEntry,
    PlanUpdate,
    SessionInfoUpdate,
    TerminalItem,
    TextBlock,
    ToolCallChange,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)
from shared.text.shown import TITLE_MOST, escaped, fenced, in_markdown, one_line, title

_RANK = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}


class Updates:
    """Translates for one session."""

    def __init__(self) -> None:
        self._cards: dict[str, Card] = {}
        self._mid_text = False

    def of(self, event: Shown) -> list[AnyUpdate]:
        """The updates that show `event`; none when the editor needs not see it. A live user message is not echoed."""
        if isinstance(event, Said):
            self._mid_text = True
            return [AgentMessageChunk(content=TextBlock(text=event.text), message_id=event.message)]
        if isinstance(event, Remark):
            return [self._remark(event)]
        if isinstance(event, Thought):
            return [AgentThoughtChunk(content=TextBlock(text=event.text), message_id=event.message)]
        if isinstance(event, Card):
            return self._card(event)
        if isinstance(event, Used):
            return [UsageUpdate(used=event.used, size=event.size)]
        if isinstance(event, Titled):
            return [SessionInfoUpdate(title=one_line(event.title, TITLE_MOST))]
        if isinstance(event, PlanSet):
            entries = [
                PlanEntry(content=title(text), priority=weight, status=state)  # type: ignore[arg-type]
                for text, weight, state in event.entries
            ]
            return [PlanUpdate(entries=entries)]
        return []

    def _remark(self, event: Remark) -> AgentMessageChunk:
        """A paragraph of its own also where the editor joins all chunks to one text."""
        before = "\n\n" if self._mid_text else ""
        self._mid_text = False
        return AgentMessageChunk(
            content=TextBlock(text=f"{before}{in_markdown(event.text)}\n\n"), message_id=event.message
        )

    def replay(self, events: Sequence[Shown]) -> list[AnyUpdate]:
        """A saved conversation again, in order, the user's messages included."""
        updates: list[AnyUpdate] = []
        for event in events:
            if isinstance(event, UserSaid):
                self._mid_text = False
                updates += [UserMessageChunk(content=block_of(part), message_id=event.message) for part in event.parts]
            else:
                updates += self.of(event)
        return updates

    def known(self, card: str) -> bool:
        """Whether the editor has seen this card."""
        return card in self._cards

    def _card(self, card: Card) -> list[AnyUpdate]:
        seen = self._cards.get(card.card)
        if seen is not None and _RANK[card.status] < _RANK[seen.status]:
            return []  # statuses only move forward
        self._cards[card.card] = card
        if seen is None:
            return [
                ToolCallUpdate(
                    tool_call_id=card.card,
                    title=title(card.title),
                    kind=card.kind,
                    status=card.status,
                    content=items_of(card.items),
                    locations=locations_of(card.locations),
                    raw_input=UNSET if card.input is None else card.input,
                    raw_output=UNSET if card.output is None else card.output,
                )
            ]
        return [
            ToolCallChange(
                tool_call_id=card.card,
                title=title(card.title) if card.title != seen.title else UNSET,
                kind=card.kind if card.kind != seen.kind else UNSET,
                status=card.status if card.status != seen.status else UNSET,
                content=items_of(card.items) if card.items != seen.items else UNSET,
                locations=locations_of(card.locations) if card.locations != seen.locations else UNSET,
                raw_output=card.output if card.output is not None and card.output != seen.output else UNSET,
            )
        ]


def items_of(items: Sequence[Item]) -> list[CardItem]:
    """The content of a card. Editors read its texts as Markdown: what tools and servers printed stands in a fence."""
    return [_item(item) for item in items]


def locations_of(locations: Sequence[FileLocation]) -> list[Location]:
    """The files a card is about."""
    return [Location(path=one.path, line=UNSET if one.line is None else one.line) for one in locations]


def _item(item: Item) -> CardItem:
    if isinstance(item, TextItem):
        text = escaped(item.text)
        return ContentItem(content=TextBlock(text=fenced(text) if text.strip() else ""))
    if isinstance(item, Change):
        return DiffItem(path=item.path, new_text=item.new, old_text=item.old)
    return TerminalItem(terminal_id=item.terminal)


def commands_update() -> AvailableCommandsUpdate:
    """The slash commands."""
    return AvailableCommandsUpdate(
        available_commands=[
            AvailableCommand(
                name=command.name,
                description=command.description,
                input=CommandInput(hint=command.hint) if command.hint else UNSET,
            )
            for command in COMMANDS
        ]
    )
