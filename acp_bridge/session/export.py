"""A conversation as one Markdown document: what was said and done, in order. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from acp_bridge.session.events import (
    Card,
    Change,
    Compacted,
    ImagePart,
    Item,
    LinkPart,
    LiveTerminal,
    Part,
    PlanSet,
    Remark,
    ResourcePart,
    Said,
    Saved,
    TextPart,
    Thought,
    TurnEnded,
    UserSaid,
)
from acp_bridge.session.state import Conversation

_BOXES = {"completed": "x", "in_progress": "-", "pending": " "}
_ENDINGS = {
    "cancelled": "The answer was cancelled.",
    "max_tokens": "The answer was cut at its limit.",
    "max_turn_requests": "The turn was ended at its limit of requests.",
    "refusal": "The model refused to go on.",
    "failed": "The turn failed.",
}


def markdown(conversation: Conversation) -> str:
    """The document, ending in one line break. Nothing in it can break out of its fence."""
    began = datetime.fromtimestamp(conversation.created, UTC)
    head = [f"# {conversation.title or 'Conversation'}", f"- Folder: `{conversation.cwd}`"]
    if conversation.model:
        head.append(f"- Model: `{conversation.model}`")
    head += [f"- Started: {began:%Y-%m-%d %H:%M} UTC", f"- Id: `{conversation.id}`"]
    return "\n\n".join(["\n".join([head[0], "", *head[1:]]), *_body(conversation.events)]) + "\n"


def file_name(conversation: Conversation) -> str:
    """A plain name for the document, from the title."""
    words = re.sub(r"[^a-z0-9]+", "-", conversation.title.lower()).strip("-")[:40].strip("-")
    return f"{words or 'conversation'}-{conversation.id[:8]}.md"


def _body(events: Sequence[Saved]) -> list[str]:
    blocks: list[str] = []
    speaker = ""
    for event in events:
        block = _block(event)
        if not block:
            continue
        now = "You" if isinstance(event, UserSaid) else "Assistant"
        if now != speaker or isinstance(event, UserSaid):
            blocks.append(f"## {now}")
            speaker = now
        blocks.append(block)
    return blocks


def _block(event: Saved) -> str:
    if isinstance(event, UserSaid):
        return "\n\n".join(filter(None, map(_part, event.parts)))
    if isinstance(event, Said):
        return event.text.strip()
    if isinstance(event, Thought):
        return _folded("Thought", event.text.strip()) if event.text.strip() else ""
    if isinstance(event, Card):
        return _card(event)
    if isinstance(event, PlanSet):
        return "\n".join(f"- [{_BOXES.get(state, ' ')}] {text}" for text, _, state in event.entries)
    if isinstance(event, Remark):
        return _quoted(event.text)
    if isinstance(event, Compacted):
        return _quoted(f"What was said so far was replaced by this summary:\n\n{event.summary}")
    if isinstance(event, TurnEnded):
        ending = _ENDINGS.get(event.stop, "")
        return f"*{ending}*" if ending else ""
    return ""  # calls and answers of tools stand on their cards


def _part(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text.strip()
    if isinstance(part, LinkPart):
        return f"[{part.name}]({part.uri})"
    if isinstance(part, ResourcePart):
        return f"`{part.uri}`\n\n{fenced(part.text)}"
    if isinstance(part, ImagePart):
        return f"*(an image, {part.mime_type})*"
    return ""


def _card(card: Card) -> str:
    state = "" if card.status == "completed" else f" ({card.status.replace('_', ' ')})"
    shown = [_item(item) for item in card.items]
    return "\n\n".join([f"**{card.title}**{state}", *filter(None, shown)])


def _item(item: Item) -> str:
    if isinstance(item, Change):
        before = (item.old or "").splitlines()
        lines = difflib.unified_diff(before, item.new.splitlines(), item.path, item.path, lineterm="")
        return fenced("\n".join(lines), "diff")
    if isinstance(item, LiveTerminal):
        return ""
    return fenced(item.text)


def _folded(title: str, text: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{fenced(text)}\n\n</details>"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
