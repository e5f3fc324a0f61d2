"""Brings the messages of a conversation into an order and a form that a template takes. Pure.

`repaired` is for every template: what it does, no template needs otherwise. The rest is done where a template was
found to need it. Words are moved to where they can be said; what stands in for something says so in brackets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from modeld.template.teach import result_as_text

Message = dict[str, Any]
#: What stands where a conversation has nothing and a template must have something.
NO_RESULT = "(no result)"
NO_ANSWER = "(no answer)"
CONTINUED = "(the conversation goes on)"
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def repaired(messages: Sequence[Message], *, whole: bool = True) -> list[Message]:
    """Every call has its result behind it, every result its call before it, and nobody says nothing.

    A result that belongs to no call becomes a user's message. Results get the name of what was called. System messages
    at the begin become one. Not `whole`: calls at the end may still wait for their results.
    """
    fixed: list[Message] = []
    waiting: dict[str, Message] = {}
    for message in messages:
        if message.get("role") == "tool":
            fixed.append(_result(message, waiting))
            continue
        fixed += [_no_result(key, call) for key, call in waiting.items()]
        calls = [_numbered(call, index) for index, call in enumerate(message.get("tool_calls") or ())]
        waiting = {call["id"]: call for call in calls}
        if calls:
            fixed.append({**message, "tool_calls": calls})
        elif message.get("content") or message.get("role") != "assistant":
            fixed.append(message)
    if whole:
        fixed += [_no_result(key, call) for key, call in waiting.items()]
    return _one_system(fixed)


def _result(message: Message, waiting: dict[str, Message]) -> Message:
    key = message.get("tool_call_id")
    if key is None:
        key = next(iter(waiting), None)  # in the order of the calls
    call = waiting.pop(key, None) if isinstance(key, str) else None
    if call is None:
        return {"role": "user", "content": result_as_text(message)}
    name = (call.get("function") or {}).get("name")
    return {**message, "tool_call_id": key, **({"name": name} if name else {})}


def _no_result(key: str, call: Message) -> Message:
    return {"role": "tool", "tool_call_id": key, "name": call["function"].get("name", ""), "content": NO_RESULT}


def _numbered(call: Message, index: int) -> Message:
    return {**call, "id": str(call.get("id") or f"call{index:05}"), "function": dict(call.get("function") or {})}


def _one_system(messages: list[Message]) -> list[Message]:
    count = next((at for at, one in enumerate(messages) if one.get("role") != "system"), len(messages))
    if count < 2:
        return messages
    first = {**messages[0], "content": "\n\n".join(filter(None, (one["content"] for one in messages[:count])))}
    return [first, *messages[count:]]


def one_call_each(messages: Sequence[Message]) -> list[Message]:
    """Several calls of one message become a message each, with the result of each behind it."""
    parted: list[Message] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            parted.append(message)
            continue
        results = {}
        while at < len(messages) and messages[at].get("role") == "tool":
            results[messages[at]["tool_call_id"]] = messages[at]
            at += 1
        for index, call in enumerate(calls):
            bare = message if index == 0 else {"role": "assistant", "content": ""}
            parted.append({**bare, "tool_calls": [call]})
            if call["id"] in results:
                parted.append(results[call["id"]])
    return parted


def text_apart(messages: Sequence[Message]) -> list[Message]:
    """Text beside calls becomes a message before them."""
    parted: list[Message] = []
    for message in messages:
        if message.get("tool_calls") and message.get("content"):
            parted += [{"role": "assistant", "content": message["content"]}, {**message, "content": ""}]
        else:
            parted.append(message)
    return parted


def text_with_result(messages: Sequence[Message]) -> list[Message]:
    """Text beside calls stands before the first result, and says what it is."""
    moved: list[Message] = []
    text = ""
    for message in messages:
        if message.get("role") == "tool" and text:
            told = f"(said with this call: {text})\n\n{message.get('content') or ''}"
            moved.append({**message, "content": told})
            text = ""
        elif message.get("tool_calls") and message.get("content"):
            text = message["content"]
            moved.append({**message, "content": ""})
        else:
            moved.append(message)
    if text:  # no result has come yet
        moved.insert(len(moved) - 1, {"role": "assistant", "content": text})
    return moved


def system_first_only(messages: Sequence[Message]) -> list[Message]:
    """What the system says later becomes the begin of the next user message."""
    moved: list[Message] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.get("role") == "system" and index:
            waiting.append(message["content"])
            continue
        if waiting and message.get("role") == "user":
            moved.append({**message, "content": "\n\n".join(filter(None, [*waiting, message.get("content") or ""]))})
        else:
            moved += [{"role": "user", "content": "\n\n".join(waiting)}] if waiting else []
            moved.append(message)
        waiting = []
    return [*moved, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else moved


def user_first(messages: Sequence[Message]) -> list[Message]:
    """Before the first word of a model stands one of a user."""
    first = next((at for at, one in enumerate(messages) if one.get("role") != "system"), len(messages))
    if first < len(messages) and messages[first].get("role") == "user":
        return list(messages)
    return [*messages[:first], {"role": "user", "content": CONTINUED}, *messages[first:]]


def answered(messages: Sequence[Message]) -> list[Message]:
    """Between a result and the next word of a user stands one of the model."""
    whole: list[Message] = []
    for message in messages:
        if whole and whole[-1].get("role") == "tool" and message.get("role") == "user":
            whole.append({"role": "assistant", "content": NO_ANSWER})
        whole.append(message)
    return whole


def renumbered(messages: Sequence[Message], *, named: bool) -> list[Message]:
    """Ids of calls as the strictest templates want them: nine letters and digits; or the name and a number."""
    ids: dict[str, str] = {}
    count = 0
    told: list[Message] = []
    for message in messages:
        calls = message.get("tool_calls")
        if calls:
            for call in calls:
                name = call["function"].get("name", "")
                ids[call["id"]] = f"functions.{name}:{count}" if named else _nine(call["id"])
                count += 1
            told.append({**message, "tool_calls": [{**call, "id": ids[call["id"]]} for call in calls]})
        elif message.get("role") == "tool":
            told.append({**message, "tool_call_id": ids.get(message["tool_call_id"], message["tool_call_id"])})
        else:
            told.append(message)
    return told


def _nine(call_id: str) -> str:
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return "".join(_ALPHABET[number // 36**place % 36] for place in range(9))
