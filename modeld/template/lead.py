"""Finds how a model begins a tool call from what its template writes for an earlier one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from modeld.output.format import OutputFormat
from modeld.output.grammar.values import Lead
from modeld.output.parser import OutputParser
from shared.errors import TemplateFailed

if TYPE_CHECKING:
    from modeld.template.render import Template

_WORD = "zqxjk"
_NAME, _KEY = f"{_WORD}name", f"{_WORD}key"
_ASK = {"role": "user", "content": f"{_WORD}ask"}
#: Some families number their calls in the id and show nothing else of the name.
_CALL_IDS = ("abcdefghi", f"functions.{_NAME}:0")


def call_lead(template: Template, tools: Sequence[dict[str, Any]]) -> Lead | None:
    """What stands between the begin of an answer and a call's arguments.

    None where the template does not tell, and where it writes what our parser would not read.
    """
    try:
        asked = template.render([_ASK], tools, "off")
        rendered = [
            template.render([_ASK, _called(one)], tools, "off", add_generation_prompt=False) for one in _CALL_IDS
        ]
    except TemplateFailed:
        return None
    form = template.output_format(asked)
    head = _without_thoughts(_behind(asked), form)
    for call_id, text in zip(_CALL_IDS, rendered, strict=True):
        call = _without_thoughts(_behind(text), form)
        if call.startswith(head) and _tells(call, call_id, alike=len(set(rendered)) == 1):
            found = _parted(call[len(head) :])
            if found is not None and _is_read(call[len(head) :], form):
                return found
    return None


def _tells(call: str, call_id: str, *, alike: bool) -> bool:
    """Whether every call begins so: not with an id of its own, unless that is made of the name."""
    return alike or (call_id in call) == (_NAME in call_id)


def _is_read(call: str, form: OutputFormat) -> bool:
    tool = {"type": "function", "function": {"name": _NAME, "parameters": {"type": "object"}}}
    parser = OutputParser(msgspec.structs.replace(form, opened=False), tools=[tool])
    parser.feed(call.encode())
    return any(one.name == _NAME for one in parser.finish()[1])


def _called(call_id: str) -> dict[str, Any]:
    function = {"name": _NAME, "arguments": {_KEY: f"{_WORD}value"}}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _behind(text: str) -> str:
    return text[text.rfind(_ASK["content"]) :]


def _without_thoughts(text: str, form: OutputFormat) -> str:
    """Empty thoughts, and an opener at the end, are the prompt's way to begin: no part of a call."""
    marks = (form.think_open, form.think_close)
    opened, closed = ("(?:" + "|".join(map(re.escape, one)) + ")" for one in marks)
    return re.sub(rf"{opened}\s*\Z", "", re.sub(rf"(?:{opened}\s*)?{closed}\s*", "", text))


def _parted(call: str) -> Lead | None:
    before, name, rest = call.partition(_NAME)
    if not name or _KEY in before:
        return None
    after, key, _ = rest.partition(_KEY)
    brace = after.rfind("{")
    if key and brace > 0 and not after[brace + 1 :].strip(" \t\r\n\"'") and '"' in after[brace:]:
        return Lead(before, after[:brace], json=True)
    return Lead(before, rest[:1], json=False) if rest else None
