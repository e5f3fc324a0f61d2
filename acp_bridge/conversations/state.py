"""A conversation as a value, and what follows from its saved events: messages, title, replay.

Pure: no clock, no disk, no protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from acp_bridge.conversations.events import (
    Compacted,
    ImagePart,
    Instructed,
    LinkPart,
    Part,
    ResourcePart,
    Said,
    Saved,
    TextPart,
    ToolAnswered,
    ToolsCalled,
    TurnEnded,
    UserSaid,
)

ModeName = Literal["ask", "code", "auto"]
MODES: tuple[ModeName, ...] = ("ask", "code", "auto")
DEFAULT_MODE: ModeName = "code"
TITLE_LENGTH = 60


class Conversation(msgspec.Struct, kw_only=True):
    """One conversation. `model` is the remembered pick, "" when the user has not picked yet.

    `dropped` counts the model's messages left out at the head so far, so that what is sent stays a stable
    prefix from turn to turn. `tools` is "on" or "off" as the user set it, "" when they did not. `created` and
    `updated` are seconds since the epoch.
    """

    id: str
    cwd: str
    roots: list[str] = []
    title: str = ""
    model: str = ""
    mode: ModeName = DEFAULT_MODE
    thinking: str = ""
    tools: str = ""
    dropped: int = 0
    created: float = 0.0
    updated: float = 0.0
    events: list[Saved] = []

    @property
    def empty(self) -> bool:
        """Nobody has said anything yet."""
        return not self.events

    @property
    def instructions(self) -> str | None:
        """The user's own system message, "" where they want none, None where they said nothing of it."""
        return next((event.system for event in reversed(self.events) if isinstance(event, Instructed)), None)

    @property
    def has_images(self) -> bool:
        """The user has shown an image at some time."""
        return any(isinstance(event, UserSaid) and has_image(event.parts) for event in self.events)


def has_image(parts: Sequence[Part]) -> bool:
    """Whether an image is among the parts of a message."""
    return any(isinstance(part, ImagePart) for part in parts)


def part_text(part: Part) -> str:
    """What the model reads of one part of the user's message."""
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, LinkPart):
        if part.text is None:
            return f"[{part.name}]({part.uri})"
        return f'<file path="{part.uri}">\n{part.text}\n</file>'
    if isinstance(part, ResourcePart):
        return f'<file path="{part.uri}">\n{part.text}\n</file>'
    return ""


def user_content(parts: Sequence[Part], *, supports_images: bool = False) -> str | list[dict[str, Any]]:
    """The content of a user message: plain text, or parts when there are images and the model `supports_images`.

    Files come first, the user's words last, where small models look. An image that cannot be sent leaves a word, so
    that the model does not talk as if there had been none.
    """
    images = [part for part in parts if isinstance(part, ImagePart)]
    files = [part_text(part) for part in parts if isinstance(part, (LinkPart, ResourcePart))]
    words = [part_text(part) for part in parts if isinstance(part, TextPart)]
    notes = [] if supports_images else [f"[an image ({image.mime_type}) that you cannot see]" for image in images]
    text = "\n\n".join([*files, *notes, "".join(words)]).strip()
    if not images or not supports_images:
        return text
    shown: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": f"data:{image.mime_type};base64,{image.data}"}} for image in images
    ]
    return [*shown, {"type": "text", "text": text}]


def messages_of(events: Sequence[Saved], *, supports_images: bool = False) -> list[dict[str, Any]]:
    """The conversation as chat-completion messages, without a system message; images where the model takes them.

    A message that failed before a word of answer is left out: the user knows, and will say it again or otherwise.
    A message that was refused is left out with what came of it, as the protocol says of refusals.
    Consecutive text and calls of one model message are one entry. A call without an answer (the process died in
    between) gets one, since templates refuse a call that nobody answered.
    """
    messages: list[dict[str, Any]] = []
    began = 0
    for event in events:
        if isinstance(event, UserSaid):
            began = len(messages)
            messages.append({"role": "user", "content": user_content(event.parts, supports_images=supports_images)})
        elif isinstance(event, TurnEnded) and event.stop == "failed":
            _forget_unanswered(messages, began)
        elif isinstance(event, TurnEnded) and event.stop == "refusal":
            del messages[began:]
        elif isinstance(event, Said):
            _add_text(messages, event.text)
        elif isinstance(event, ToolsCalled):
            _add_calls(messages, event.calls)
        elif isinstance(event, ToolAnswered):
            messages.append({"role": "tool", "tool_call_id": event.call, "name": event.name, "content": event.text})
        elif isinstance(event, Compacted):
            messages = [{"role": "user", "content": f"Summary of the conversation so far:\n{event.summary}"}]
            messages.append({"role": "assistant", "content": "Understood."})
    return _answered(_merged(messages))


def _forget_unanswered(messages: list[dict[str, Any]], began: int) -> None:
    if all(message["role"] == "user" for message in messages[began:]):
        del messages[began:]


def _add_text(messages: list[dict[str, Any]], text: str) -> None:
    if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
        messages[-1]["content"] += text
    else:
        messages.append({"role": "assistant", "content": text})


def _add_calls(messages: list[dict[str, Any]], calls: list[dict[str, Any]]) -> None:
    if not (messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]):
        messages.append({"role": "assistant", "content": ""})
    messages[-1]["tool_calls"] = calls


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two user messages in a row (the turn between was cancelled before a word) are one: templates may refuse two."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        last = merged[-1] if merged else {"role": ""}
        both_text = isinstance(last.get("content"), str) and isinstance(message["content"], str)
        if last["role"] == message["role"] == "user" and both_text:
            merged[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
        else:
            merged.append(message)
    return merged


def _answered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answered = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    result: list[dict[str, Any]] = []
    for message in messages:
        result.append(message)
        for call in message.get("tool_calls", []):
            if call["id"] not in answered:
                name = call["function"]["name"]
                result.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": "(interrupted)"})
    return result


def title_of(parts: Sequence[Part]) -> str:
    """The title a conversation gets from its first message: its first line, cut at a word."""
    text = " ".join("".join(part.text for part in parts if isinstance(part, TextPart)).split())
    if len(text) <= TITLE_LENGTH:
        return text
    head, _, _ = text[: TITLE_LENGTH - 1].rpartition(" ")
    return (head or text[: TITLE_LENGTH - 1]) + "…"
