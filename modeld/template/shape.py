"""What a template can express (found by `shape_probe`), and how conversations are adapted to it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from modeld.template import history, message_parts
from modeld.template.teach import call_as_text, result_as_text, tools_as_text
from shared.text.nesting import loads_json

#: Takes contents (any JSON value) and gives what is rendered in their place.
Escape = Callable[[Any], Any]
_NOTES: tuple[tuple[str, Any, str], ...] = (
    ("system", False, "the template has no system role; it is put before the first user message"),
    ("tools", False, "the template knows no tools; they are described in the system message"),
    ("late_system", False, "later system messages are put before the next user message"),
    ("one_call", True, "several calls in one message become messages of their own"),
    ("beside", "apart", "text beside a call becomes a message before it"),
    ("beside", "with_result", "text beside a call is put before its result"),
    ("answered", True, "a call that no answer followed gets the answer (no answer)"),
    ("user_first", True, "a conversation that begins with the model gets a first user message"),
    ("ids", "nine", "calls get ids of nine letters and digits"),
    ("ids", "named", "calls get ids that hold their name"),
    ("alternating", True, "two messages of one role in a row become one"),
)
#: Where the words of a request stand: what comes before are its files.
REQUEST_CHARACTERS = 400

#: What a role or a field of a message is called.
_NAME = re.compile(r"[A-Za-z_-]+")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """`text_arguments`: calls carry their arguments as JSON text, not as an object.

    `null_content`: the content of a message that only calls tools must be null. `parts`: contents are
    lists of typed parts. `alternating`: two messages of one role in a row are refused. `late_system`: the system may
    speak again later. `user_first`, `answered`, `one_call`: see `history`. `beside`: where text beside a call goes.
    `ids`: how calls are numbered.
    """

    system: bool = True
    late_system: bool = True
    tools: bool = False
    calls: bool = False
    results: bool = False
    text_arguments: bool = False
    null_content: bool = False
    parts: bool = False
    alternating: bool = False
    user_first: bool = False
    answered: bool = False
    one_call: bool = False
    beside: Literal["kept", "apart", "with_result"] = "kept"
    ids: Literal["kept", "nine", "named"] = "kept"
    renders: bool = True

    @property
    def strictest(self) -> Shape:
        """Users and the model by turns, and nothing else: all that a template may refuse is said in words."""
        return Shape(parts=self.parts, system=False, alternating=True, user_first=True, renders=self.renders)

    def notes(self) -> list[str]:
        """What is brought into shape, for people."""
        return [words for field, value, words in _NOTES if getattr(self, field) == value]


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
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]],
    shape: Shape,
    escape: Escape = unescaped,
    described: Sequence[dict[str, Any]] = (),
    *,
    whole: bool = True,
) -> Adapted:
    """Bring a conversation into the shape. Words are moved where they can be said, never left out.

    Contents go through `escape` before our own words come to stand around them. `described`: tools that this template
    cannot show. Not `whole`: the last calls may still wait for their results.
    """
    wanted, told = list(escape(list(tools))), list(escape(list(described)))
    if not shape.tools:
        wanted, told = [], [*wanted, *told]
    plain = history.repaired([_plain(message, shape, escape) for message in messages], whole=whole)
    adapted = [_in_words(message, shape) for message in _ordered(plain, shape)]
    if told:
        adapted = _with_system(adapted, tools_as_text(told))
    if not shape.system:
        adapted = _fold_system(adapted)
    elif not shape.late_system:
        adapted = history.system_first_only(adapted)
    if shape.user_first:
        adapted = history.user_first(adapted)
    if shape.answered:
        adapted = history.answered(adapted)
    if shape.alternating:
        adapted = _merge(adapted)
    same = [one.get("role") for one in adapted] == [one.get("role") for one in messages]
    if shape.parts:
        adapted = [_as_parts(message) for message in adapted]
    return Adapted(messages=adapted, tools=wanted, same=same)


def _ordered(messages: list[dict[str, Any]], shape: Shape) -> list[dict[str, Any]]:
    """Calls and results as the template takes them."""
    if not shape.calls:
        return messages
    if shape.one_call:
        messages = history.one_call_each(messages)
    if shape.beside != "kept":
        messages = (history.text_apart if shape.beside == "apart" else history.text_with_result)(messages)
    return messages if shape.ids == "kept" else history.renumbered(messages, named=shape.ids == "named")


def _plain(message: dict[str, Any], shape: Shape, escape: Escape) -> dict[str, Any]:
    """One message with text content and only the keys that say something."""
    kept = {key: value for key, value in message.items() if value not in (None, [], "")}
    kept["content"] = text_of(message.get("content"))
    if kept.get("role") == "developer":
        kept["role"] = "system"
    if kept.get("tool_calls") and shape.calls:
        kept["tool_calls"] = [_call(one, shape) for one in kept["tool_calls"]]
    kept = {_key(key, escape): _value(key, value, escape) for key, value in kept.items()}
    if "reasoning_content" in kept:
        kept.setdefault("thinking", kept["reasoning_content"])
        kept.setdefault("reasoning", kept["reasoning_content"])
    return kept


def _in_words(message: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Calls and results in words where the template has no place for them."""
    calls = message.get("tool_calls")
    if calls and not shape.calls:
        told = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**told, "content": "\n".join(filter(None, [message["content"], *map(call_as_text, calls)]))}
    if calls and shape.null_content and not message["content"]:
        return {**message, "content": None}
    if message.get("role") == "tool" and not shape.results:
        return {"role": "user", "content": result_as_text(message)}
    return message


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
    elif not shape.text_arguments:
        function["arguments"] = _as_object(arguments)
    return {**call, "type": "function", "function": function}


def _as_object(arguments: Any) -> dict[str, Any]:
    """What is no object stays visible to the model in one."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = loads_json(arguments) if arguments.strip() else {}
        except ValueError:
            value = arguments
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"arguments": value}


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
