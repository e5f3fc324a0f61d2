"""A conversation as one Markdown document: what was said and done, in order. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from acp_bridge.conversations.events import (
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
from acp_bridge.conversations.state import Conversation
from shared.text.shown import MESSAGE_MOST, code_span, fenced, in_markdown, title

_BOXES = {"completed": "x", "in_progress": "-", "pending": " "}
#: What would end the target of a link before its end.
_ENDS_A_TARGET = re.compile(r"[\x00-\x20()<>\x7f-\x9f]")
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
    head = [
        f"# {title(conversation.title) or 'Conversation'}",
        f"- Folder: {code_span(conversation.cwd, MESSAGE_MOST)}",
    ]
    if conversation.model:
        head.append(f"- Model: {code_span(conversation.model)}")
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
        return "\n".join(f"- [{_BOXES.get(state, ' ')}] {title(text)}" for text, _, state in event.entries)
    if isinstance(event, Remark):
        return _quoted(in_markdown(event.text))
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
        return f"[{title(part.name)}]({_ENDS_A_TARGET.sub(_percent, part.uri)})"
    if isinstance(part, ResourcePart):
        return f"{code_span(part.uri, MESSAGE_MOST)}\n\n{fenced(part.text)}"
    if isinstance(part, ImagePart):
        return f"*(an image, {part.mime_type})*"
    return ""


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace"))


def _card(card: Card) -> str:
    state = "" if card.status == "completed" else f" ({card.status.replace('_', ' ')})"
    shown = [_item(item) for item in card.items]
    return "\n\n".join([f"**{title(card.title)}**{state}", *filter(None, shown)])


def _item(item: Item) -> str:
    if isinstance(item, Change):
        before = (item.old or "").splitlines()
        lines = difflib.unified_diff(before, item.new.splitlines(), item.path, item.path, lineterm="")
        return fenced("\n".join(lines), "diff")
    if isinstance(item, LiveTerminal):
        return ""
    return fenced(item.text)


def _folded(heading: str, text: str) -> str:
    return f"<details>\n<summary>{heading}</summary>\n\n{fenced(text)}\n\n</details>"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
