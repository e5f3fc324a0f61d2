"""Finds what a template can express and adapts conversations to it.

Found by rendering tiny conversations with words that occur nowhere else: what does not come out was
dropped, and nothing may be dropped silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from modeld.template import message_parts
from modeld.template.teach import call_as_text, result_as_text, tools_as_text
from shared.text.nesting import loads_json

#: Takes contents (any JSON value) and gives what is rendered in their place.
Escape = Callable[[Any], Any]
#: Renders messages and tools; None where the template fails.
Try = Callable[[list[dict[str, Any]], list[dict[str, Any]]], str | None]
#: Where the words of a request stand: what comes before are its files.
REQUEST_CHARACTERS = 400

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
#: What a role or a field of a message is called.
_NAME = re.compile(r"[A-Za-z_-]+")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """`text_arguments`: calls carry their arguments as JSON text, not as an object.

    `null_content`: the content of a message that only calls tools must be null. `parts`: contents are
    lists of typed parts. `alternating`: two messages of one role in a row are refused.
    """

    system: bool = True
    tools: bool = False
    calls: bool = False
    results: bool = False
    text_arguments: bool = False
    null_content: bool = False
    parts: bool = False
    alternating: bool = False
    renders: bool = True

    @classmethod
    def found_by(cls, render: Try) -> Shape:
        """Try a template out: a dozen renders of a few messages."""
        parts = _shows(render, [_USER], ()) is False and _shows(render, [_as_parts(_USER)], ()) is True
        wrap = _as_parts if parts else (lambda message: message)
        plain = [wrap(_USER)]
        system = _shows(render, [wrap({"role": "system", "content": f"{_WORD}0"}), *plain], (f"{_WORD}0",))
        twice = [wrap({"role": "user", "content": f"{_WORD}0"}), *plain]
        tools = _shows(render, plain, (f"{_WORD}tool",), [_TOOL])
        calls = _find_calls(render, plain, wrap)
        return cls(
            renders=_shows(render, plain, ()),
            parts=parts,
            system=system,
            alternating=not _shows(render, twice, (f"{_WORD}0",)),
            tools=tools,
            calls=calls is not None,
            results=calls is not None and calls[2],
            text_arguments=calls is not None and calls[0],
            null_content=calls is not None and calls[1],
        )


class Adapted(msgspec.Struct):
    """A conversation in a template's shape. `same`: message indexes are those of the caller."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    same: bool

    def whole(self, at: int | None) -> bool:
        """Whether an index into `messages` may be reported to the caller."""
        return at is not None and self.same


def unescaped(value: Any) -> Any:
    """The contents as they are."""
    return value


def adapt(
    messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], shape: Shape, escape: Escape = unescaped
) -> Adapted:
    """Bring a conversation into the shape. Words are moved where they can be said, never left out.

    Contents go through `escape` before our own words come to stand around them.
    """
    adapted = [_plain(message, shape, escape) for message in messages]
    count = len(adapted)
    wanted = list(escape(list(tools)))
    if wanted and not shape.tools:
        adapted = _with_system(adapted, tools_as_text(wanted))
        wanted = []
    if not shape.system:
        adapted = _fold_system(adapted)
    if shape.alternating:
        adapted = _merge(adapted)
    if shape.parts:
        adapted = [_as_parts(message) for message in adapted]
    return Adapted(messages=adapted, tools=wanted, same=len(adapted) == count)


def _plain(message: dict[str, Any], shape: Shape, escape: Escape) -> dict[str, Any]:
    """One message with text content and only the keys that say something."""
    kept = {key: value for key, value in message.items() if value not in (None, [], "")}
    kept["content"] = text_of(message.get("content"))
    if kept.get("tool_calls") and shape.calls:
        kept["tool_calls"] = [_call(one, shape) for one in kept["tool_calls"]]
    kept = {_key(key, escape): _value(key, value, escape) for key, value in kept.items()}
    calls = kept.get("tool_calls")
    if calls and not shape.calls:
        kept.pop("tool_calls")
        kept["content"] = "\n".join(filter(None, [kept["content"], *map(call_as_text, calls)]))
    elif calls and shape.null_content and not kept["content"]:
        kept["content"] = None
    if kept.get("role") == "tool" and not shape.results:
        return {"role": "user", "content": result_as_text(kept)}
    if "reasoning_content" in kept:
        kept.setdefault("thinking", kept["reasoning_content"])
        kept.setdefault("reasoning", kept["reasoning_content"])
    return kept


def _key(key: str, escape: Escape) -> Any:
    return key if _NAME.fullmatch(key) else escape(key)


def _value(key: str, value: Any, escape: Escape) -> Any:
    """A role is structure, and templates write it into marks (`<|user|>`); what is no word is as any content."""
    return value if key == "role" and isinstance(value, str) and _NAME.fullmatch(value) else escape(value)


def _call(call: dict[str, Any], shape: Shape) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if shape.text_arguments and not isinstance(arguments, str):
        function["arguments"] = json.dumps(arguments or {}, ensure_ascii=False)
    elif not shape.text_arguments and isinstance(arguments, str):
        try:
            function["arguments"] = loads_json(arguments) if arguments.strip() else {}
        except ValueError:
            function["arguments"] = arguments  # as it was said: a broken call stays visible to the model
    return {**call, "type": "function", "function": function}


def text_of(content: Any) -> str:
    """The text of a content in any of its usual forms."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(message_parts.text_of(part) for part in content)
    return "" if content is None else str(content)


def request_of(messages: Sequence[dict[str, Any]]) -> str:
    """The person's own words in the last two messages that are theirs."""
    mine = [message.get("content") for message in messages if message.get("role") == "user"][-2:]
    return "\n".join(text_of(content)[-REQUEST_CHARACTERS:] for content in mine)


def _as_parts(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message.get("content") or ""}]}


def _with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    if messages and messages[0].get("role") == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _fold_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the system says becomes the begin of the next user message."""
    folded: list[dict[str, Any]] = []
    waiting: list[str] = []
    for message in messages:
        if message.get("role") == "system":
            waiting.append(message["content"])
        elif message.get("role") == "user" and waiting:
            folded.append({**message, "content": "\n\n".join([*waiting, message["content"]])})
            waiting = []
        else:
            folded.append(message)
    if waiting:
        folded.append({"role": "user", "content": "\n\n".join(waiting)})
    return folded


def _merge(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one role (user or plain assistant) become one message."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        last = merged[-1] if merged else None
        mergeable = message.get("role") in ("user", "assistant") and "tool_calls" not in message
        if last and mergeable and last.get("role") == message["role"] and "tool_calls" not in last:
            last["content"] = "\n\n".join(filter(None, [last["content"], message["content"]]))
        else:
            merged.append(dict(message))
    return merged


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
