"""Finds what a template can express by rendering tiny conversations with words that occur nowhere else.

What does not come out was dropped, and nothing may be dropped silently. Tried is each form of conversation that a
bridge can write: tool loops that were stopped, several calls, text beside them, ids of other families, and roles in
odd orders. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from modeld.template.shape import Shape, adapt

#: Renders messages and tools; None where the template fails.
Try = Callable[[list[dict[str, Any]], list[dict[str, Any]]], str | None]

_WORD = "zqxjk"
_USER = {"role": "user", "content": f"{_WORD}1"}
_ARGUMENTS = {f"{_WORD}key": f"{_WORD}value"}
_TOOL = {
    "type": "function",
    "function": {
        "name": f"{_WORD}tool",
        "description": f"{_WORD}what",
        "parameters": {
            "type": "object",
            "properties": {f"{_WORD}key": {"type": "string", "description": f"{_WORD}key"}},
            "required": [f"{_WORD}key"],
        },
    },
}
_CALL_ID = "abcdefghi"


def find_shape(render: Try) -> Shape:
    """Try a template out: some dozens of renders of a few messages."""
    parts = _shows(render, [_USER], ()) is False and _shows(render, [_as_parts(_USER)], ()) is True
    wrap = _as_parts if parts else (lambda message: message)
    plain = [wrap(_USER)]
    system = _shows(render, [wrap({"role": "system", "content": f"{_WORD}0"}), *plain], (f"{_WORD}0",))
    twice = [wrap({"role": "user", "content": f"{_WORD}0"}), *plain]
    calls = _find_calls(render, plain, wrap)
    shape = Shape(
        renders=_shows(render, plain, ()),
        parts=parts,
        system=system,
        alternating=not _shows(render, twice, (f"{_WORD}0",)),
        tools=_shows(render, plain, (f"{_WORD}tool",), [_TOOL]),
        calls=calls is not None,
        results=calls is not None and calls[2],
        text_arguments=calls is not None and calls[0],
        null_content=calls is not None and calls[1],
    )
    for needed, ways in _NEEDS:
        shape = _first_way(render, shape, needed, ways)
    return shape


class _Need(msgspec.Struct, frozen=True):
    """A conversation that must come out whole, and the words of it."""

    messages: list[dict[str, Any]]
    words: tuple[str, ...]
    tools: bool = True


def _first_way(render: Try, shape: Shape, needed: _Need, ways: Sequence[dict[str, Any]]) -> Shape:
    """The shape with the first change under which `needed` comes out; as it is where none helps."""
    for way in ({}, *ways):
        changed = msgspec.structs.replace(shape, **way)
        adapted = adapt(needed.messages, [_TOOL] if needed.tools and shape.tools else [], changed)
        text = render(adapted.messages, adapted.tools)
        if text is not None and all(word in text for word in needed.words):
            return changed
    return shape


def _said(role: str, word: str) -> dict[str, Any]:
    return {"role": role, "content": f"{_WORD}{word}"}


def _calls(*numbers: int, text: str = "", ids: str = "abcdefg{}i") -> dict[str, Any]:
    made = [
        {
            "id": ids.format(number),
            "type": "function",
            "function": {"name": f"{_WORD}tool", "arguments": {f"{_WORD}key": f"{_WORD}value{number}"}},
        }
        for number in numbers
    ]
    return {"role": "assistant", "content": text and f"{_WORD}{text}", "tool_calls": made}


def _got(number: int, ids: str = "abcdefg{}i") -> dict[str, Any]:
    return {
        "role": "tool",
        "content": f"{_WORD}got{number}",
        "tool_call_id": ids.format(number),
        "name": f"{_WORD}tool",
    }


def _words(*words: str) -> tuple[str, ...]:
    return tuple(_WORD + word for word in words)


_SYSTEM, _FIRST, _ANSWER, _NEXT = (
    _said("system", "sys"),
    _said("user", "1"),
    _said("assistant", "did"),
    _said("user", "2"),
)
_LATER = _said("system", "later")
_FOREIGN = "functions.other:{}"
#: What conversations come to, and what can be done where a template refuses them or leaves a part out. In this order:
#: what was found before is in force.
_NEEDS: tuple[tuple[_Need, tuple[dict[str, Any], ...]], ...] = (
    (
        _Need([_FIRST, _calls(1), _got(1), _ANSWER, _NEXT], _words("1", "tool", "value1", "got1", "did", "2")),
        ({"ids": "named"}, {"calls": False, "results": False}),
    ),
    (
        _Need([_SYSTEM, _FIRST, _calls(1), _got(1)], _words("sys", "1", "value1", "got1")),
        ({"system": False},),
    ),
    (
        _Need(
            [_FIRST, _calls(1, ids=_FOREIGN), _got(1, ids=_FOREIGN), _ANSWER, _NEXT],
            _words("1", "tool", "value1", "got1", "did", "2"),
        ),
        ({"ids": "nine"}, {"ids": "named"}),
    ),
    (
        _Need([_FIRST, _calls(1), _got(1), _NEXT], _words("1", "value1", "got1", "2")),
        ({"answered": True},),
    ),
    (
        _Need(
            [_FIRST, _calls(1, 2), _got(1), _got(2), _ANSWER, _NEXT], _words("value1", "value2", "got1", "got2", "did")
        ),
        ({"one_call": True}, {"calls": False, "results": False}),
    ),
    (
        _Need(
            [_FIRST, _calls(1, 2, text="aside"), _got(1), _got(2), _ANSWER, _NEXT],
            _words("aside", "value1", "value2", "got1", "got2", "did", "2"),
        ),
        ({"beside": "apart"}, {"beside": "with_result"}, {"calls": False, "results": False}),
    ),
    (
        _Need([_ANSWER, _FIRST], _words("did", "1"), tools=False),
        ({"user_first": True},),
    ),
    (
        _Need([_calls(1), _got(1), _FIRST], _words("value1", "got1", "1")),
        ({"user_first": True},),
    ),
    (
        _Need([_SYSTEM, _FIRST, _ANSWER, _LATER, _NEXT], _words("sys", "1", "did", "later", "2"), tools=False),
        ({"late_system": False},),
    ),
    (
        _Need([_SYSTEM, _FIRST, _ANSWER, _LATER], _words("sys", "1", "did", "later"), tools=False),
        ({"late_system": False},),
    ),
    (
        _Need([_SYSTEM, _FIRST, _calls(1), _got(1), _LATER, _NEXT], _words("sys", "1", "value1", "got1", "later", "2")),
        ({"late_system": False},),
    ),
)


def _as_parts(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message.get("content") or ""}]}


def _shows(
    render: Try, messages: list[dict[str, Any]], words: Sequence[str], tools: list[dict[str, Any]] | None = None
) -> bool:
    text = render(messages, tools or [])
    return text is not None and all(word in text for word in (f"{_WORD}1", *words))


def _find_calls(
    render: Try, plain: list[dict[str, Any]], wrap: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[bool, bool, bool] | None:
    """(text arguments, null content, results shown) of the first way in which calls come out whole."""
    for as_text in (False, True):
        for content in ("", None):
            arguments: Any = json.dumps(_ARGUMENTS) if as_text else _ARGUMENTS
            function = {"name": f"{_WORD}tool", "arguments": arguments}
            call = {"id": _CALL_ID, "type": "function", "function": function}
            asked = {"role": "assistant", "content": content, "tool_calls": [call]}
            said = wrap({"role": "tool", "content": f"{_WORD}got", "tool_call_id": _CALL_ID, "name": f"{_WORD}tool"})
            for results in (True, False):
                after = [said] if results else []
                text = render([*plain, asked, *after], [_TOOL])
                if text is not None and _whole_call(text) and (not results or f"{_WORD}got" in text):
                    return as_text, content is None, results
    return None


def _whole_call(text: str) -> bool:
    """The call came out: its value unescaped, and not as Python writes a dict."""
    _, _, rest = text.rpartition(f"{_WORD}1")
    spoiled = (f"'{_WORD}key'", f'\\"{_WORD}key', "None")
    return f"{_WORD}value" in rest and not any(one in rest for one in spoiled)
