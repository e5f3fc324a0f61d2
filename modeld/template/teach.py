"""Tools in words, for models whose template knows none (the notation is the `generic` tool style)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def tools_as_text(tools: Sequence[dict[str, Any]]) -> str:
    """Instructions for the system message: what there is and how to call it. Short, for small models."""
    lines = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    return "\n".join(
        [
            "You can call these tools, described as JSON:",
            *lines,
            "To call one, answer with nothing but",
            '<tool_call>{"name": "the tool", "arguments": {"parameter": "value"}}</tool_call>',
            "and wait for its <tool_response>. Without need of a tool, answer in plain words.",
        ]
    )


def call_as_text(call: dict[str, Any]) -> str:
    """An earlier call of the model, as it would have written it."""
    function = call.get("function") or {}
    arguments = function.get("arguments") or {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function.get("name", ""), ensure_ascii=False)
    return f'<tool_call>{{"name": {name}, "arguments": {text}}}</tool_call>'


def result_as_text(message: dict[str, Any]) -> str:
    """What a tool answered, as a user message."""
    return f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
