"""From the editor's message history to the chat-completion shape that templates are written for. Pure.

The same history gives the same messages, byte for byte, so that what was said before stays warm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from acp_bridge.faces.lsp import wire
from acp_bridge.turn.messages import joined

_ENCODER = msgspec.json.Encoder(order="deterministic")


def chat_messages(history: Sequence[wire.Message], *, supports_images: bool = False) -> list[dict[str, Any]]:
    """The messages for the model. Images go only to a model that takes them; for others a word stands there.

    Tool results become `tool` messages of their own, before what the user says in the same message. Two messages of
    one role in a row are one (templates may refuse two), except of tools.
    """
    names = _call_names(history)
    return joined(entry for message in history for entry in _entries(message, names, supports_images))


def chat_tools(tools: Sequence[wire.Tool]) -> list[dict[str, Any]]:
    """Tools in the chat-completion shape."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def image_count(history: Sequence[wire.Message]) -> int:
    """How many images the history holds."""
    return sum(isinstance(part, wire.Image) for message in history for part in _parts(message))


def since_answer(history: Sequence[wire.Message]) -> Sequence[wire.Message]:
    """The messages behind the model's last one: what it gets now for the first time."""
    for place in range(len(history), 0, -1):
        if history[place - 1].role == "assistant":
            return history[place:]
    return history


def _parts(message: wire.Message) -> list[wire.MessagePart]:
    return [wire.Text(text=message.content)] if isinstance(message.content, str) else message.content


def _call_names(history: Sequence[wire.Message]) -> dict[str, str]:
    return {part.id: part.name for message in history for part in _parts(message) if isinstance(part, wire.CallPart)}


def _entries(message: wire.Message, names: dict[str, str], supports_images: bool) -> list[dict[str, Any]]:
    parts = _parts(message)
    entries: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": part.id, "name": names.get(part.id, ""), "content": part.text}
        for part in parts
        if isinstance(part, wire.ResultPart)
    ]
    rest = [part for part in parts if not isinstance(part, wire.ResultPart)]
    if not rest:
        return entries
    if message.role == "tool":  # words beside results, in a message that only results belong in
        return [*entries, {"role": "user", "content": _content(rest, supports_images)}]
    said: dict[str, Any] = {"role": message.role, "content": _content(rest, supports_images and message.role == "user")}
    thoughts = "".join(part.text for part in rest if isinstance(part, wire.Reasoning))
    calls = [_call(part) for part in rest if isinstance(part, wire.CallPart)]
    if thoughts and message.role == "assistant":
        said["reasoning_content"] = thoughts
    if calls and message.role == "assistant":
        said["tool_calls"] = calls
    return [*entries, said]


def _content(parts: Sequence[wire.MessagePart], supports_images: bool) -> str | list[dict[str, Any]]:
    images = [part for part in parts if isinstance(part, wire.Image)]
    text = "".join(part.text for part in parts if isinstance(part, wire.Text))
    if not images:
        return text
    if not supports_images:
        notes = [f"[an image ({image.mime_type}) that you cannot see]" for image in images]
        return "\n\n".join([*notes, text]).strip()
    shown: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": f"data:{image.mime_type};base64,{image.data}"}} for image in images
    ]
    return [*shown, {"type": "text", "text": text}]


def _call(part: wire.CallPart) -> dict[str, Any]:
    arguments = _ENCODER.encode(part.input).decode()
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments}}
