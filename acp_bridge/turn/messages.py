"""Messages in the chat-completion shape, as templates take them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def joined(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two texts of one role in a row are one message (templates may refuse two), except of tools."""
    result: list[dict[str, Any]] = []
    for message in messages:
        _add(result, message)
    return result


def _add(messages: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    last = messages[-1] if messages else {"role": ""}
    both_text = isinstance(last.get("content"), str) and isinstance(entry["content"], str)
    if last["role"] != entry["role"] or entry["role"] == "tool" or not both_text:
        messages.append(entry)
        return
    joiner = "\n\n" if last["content"] and entry["content"] and entry["role"] != "assistant" else ""
    merged = {**last, **entry, "content": f"{last['content']}{joiner}{entry['content']}"}
    if "tool_calls" in last:
        merged["tool_calls"] = [*last["tool_calls"], *entry.get("tool_calls", [])]
    messages[-1] = merged
