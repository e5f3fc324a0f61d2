"""What is asked of a conversation beyond being JSON objects: the shape that templates are written for. Pure.

A template prints whatever it is given: a number in the place of a text, or a part without one, would reach the model as
`None` or as Python's notation, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from modeld.template.message_parts import IMAGE, WORDS
from shared.protocol.api import TurnParams
from shared.protocol.faults import InvalidParams
from shared.text.nesting import TOO_DEEP, too_deep

Text = str | None


class _Address(msgspec.Struct):
    url: str


class _Part(msgspec.Struct):
    type: str = "text"
    text: Text = None
    refusal: Text = None
    image_url: str | _Address | None = None


class _Called(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _ToolCall(msgspec.Struct):
    function: _Called
    id: Text = None
    type: Text = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[str | _Part] | None = None
    reasoning_content: Text = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: Text = None
    name: Text = None


class _Function(msgspec.Struct):
    name: str
    description: Text = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    function: _Function
    type: Text = None


def require_conversation(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> None:
    """Raises InvalidParams naming the field: no message at all (templates make nonsense of none), or one, a part, a
    call or a tool that has not the shape. What is not known is let through.
    """
    if not messages:
        raise InvalidParams(at="$.messages", reason="at least one message is needed")
    for index, message in enumerate(messages):
        place = f"$.messages[{index}]"
        require_shallow(message, place)
        checked = _as(message, _Message, place)
        if not checked.role:
            raise InvalidParams(at=f"{place}.role", reason="a role is needed")
        for number, part in enumerate(checked.content if isinstance(checked.content, list) else ()):
            if isinstance(part, _Part):
                _require_words(part, f"{place}.content[{number}]")
    for index, tool in enumerate(tools):
        require_shallow(tool, f"$.tools[{index}]")
        # the bare function is accepted too
        _as(tool, _Tool if "function" in tool else _Function, f"$.tools[{index}]")


def require_text_alone(params: TurnParams) -> None:
    """Raises InvalidParams for a turn that continues a text and has none, or has messages or tools beside it."""
    if not params.prompt:
        raise InvalidParams(at="$.prompt", reason="a text to continue is needed")
    if params.messages or params.tools:
        raise InvalidParams(at="$.prompt", reason="it takes the place of messages and tools")


def require_shallow(value: object, place: str) -> None:
    """Raises InvalidParams for what nests deeper than templates, grammars and encoders can follow."""
    if too_deep(value):
        raise InvalidParams(at=place, reason=TOO_DEEP)


def _require_words(part: _Part, place: str) -> None:
    field = WORDS.get(part.type)
    if field is not None and getattr(part, field) is None:
        raise InvalidParams(at=f"{place}.{field}", reason=f"a part of type `{part.type}` needs it, as text")
    if part.type == IMAGE and part.image_url is None:
        raise InvalidParams(at=f"{place}.image_url", reason="a part of type `image_url` needs it")


def _as(value: object, kind: type[Any], place: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at ")
        raise InvalidParams(at=place + at.strip("`").removeprefix("$"), reason=reason) from error
