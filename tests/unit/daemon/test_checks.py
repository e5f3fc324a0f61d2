"""What a conversation has to be before anything renders it: the field that is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from modeld.rpc.checks import require_conversation
from modeld.template.shape import text_of
from shared.protocol.faults import InvalidParams

pytestmark = pytest.mark.unit

CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
GOOD: list[dict[str, Any]] = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": [{"type": "text", "text": "what is this"}, "and this", {"text": "?"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": {"at": 5}}}]},
    {"role": "tool", "content": "seen", "tool_call_id": "1", "name": "look"},
    {"role": "assistant", "content": "done", "reasoning_content": "thought", "unknown": 5, "tool_calls": None},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},  # refused by name where it is read
]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(**changes: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{**CALL, **changes}]}


def test_every_known_shape_is_taken() -> None:
    require_conversation(GOOD, [TOOL, TOOL["function"], {"name": "bare"}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (user([5, None]), ".content[0]"),
        (user([{"type": "text", "text": "a"}, None]), ".content[1]"),
        (user([["a"]]), ".content[0]"),
        (user(5), ".content"),
        (user({"type": "text", "text": "a"}), ".content"),
        (user([{"type": "text", "text": 5}]), ".content[0].text"),
        (user([{"type": "text"}]), ".content[0].text"),
        (user([{}]), ".content[0].text"),
        (user([{"type": None, "text": "a"}]), ".content[0].type"),
        (user([{"type": "refusal"}]), ".content[0].refusal"),
        (user([{"type": "image_url"}]), ".content[0].image_url"),
        (user([{"type": "image_url", "image_url": {"address": "a"}}]), ".content[0].image_url"),
        ({"content": "a"}, ""),
        ({"role": 5, "content": "a"}, ".role"),
        ({"role": "", "content": "a"}, ".role"),
        ({"role": "tool", "content": {"result": 5}}, ".content"),
        ({"role": "tool", "content": [True]}, ".content[0]"),
        ({"role": "tool", "content": "a", "tool_call_id": 5}, ".tool_call_id"),
        ({"role": "tool", "content": "a", "name": []}, ".name"),
        ({"role": "assistant", "content": "a", "reasoning_content": 5}, ".reasoning_content"),
        ({"role": "assistant", "tool_calls": {}}, ".tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, ".tool_calls[0]"),
        (called(function=None), ".tool_calls[0].function"),
        (called(function={"arguments": "{}"}), ".tool_calls[0].function"),
        (called(function={"name": "look", "arguments": [5]}), ".tool_calls[0].function.arguments"),
        (called(id=5), ".tool_calls[0].id"),
    ],
)
def test_a_wrong_kind_is_named_by_its_place(message: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidParams) as wrong:
        require_conversation([GOOD[0], message], [])
    assert wrong.value.at == f"$.messages[1]{place}"
    assert wrong.value.reason


@pytest.mark.parametrize(
    ("tool", "place"),
    [
        ({}, ""),
        ({"type": "function", "function": None}, ".function"),
        ({"function": {"description": "a"}}, ".function"),
        ({"function": {"name": 5}}, ".function.name"),
        ({"function": {"name": "a", "parameters": []}}, ".function.parameters"),
        ({"name": "a", "parameters": "{}"}, ".parameters"),
    ],
)
def test_a_tool_of_the_wrong_shape_is_named(tool: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidParams) as wrong:
        require_conversation(GOOD, [TOOL, tool])
    assert wrong.value.at == f"$.tools[1]{place}"


def test_no_message_is_none() -> None:
    with pytest.raises(InvalidParams, match="at least one"):
        require_conversation([], [])


def test_a_refusal_is_words() -> None:
    assert text_of([{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}, "c"]) == "abc"
