"""Conversations of the OpenAI protocol as the templates are written for them. Pure.

Texts, images and calls go through; what no local model takes (a file, a sound, an image by its address) is refused with
its place. Two messages of one role in a row are one, since templates may refuse two, except of tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp_bridge.faces.http.protocol.errors import Refusal
from acp_bridge.turn.messages import joined

#: What the protocol calls the system's words for models that reason.
SYSTEM = ("system", "developer")
_ROLES = (*SYSTEM, "user", "assistant", "tool")
_KNOWN = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal"}
)
#: Sent back by SDKs with an answer they were given, empty here.
_EMPTY = frozenset({"annotations", "audio", "function_call", "tool_calls", "refusal", "modeld"})


def chat_messages(given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages for the model. Raises Refusal naming the place."""
    names = {
        str(call.get("id")): _function(call).get("name", "")
        for message in given
        for call in _list(message.get("tool_calls"))
        if isinstance(call, dict)
    }
    return joined([_message(message, f"messages.{place}", names) for place, message in enumerate(given)])


def image_count(messages: Sequence[dict[str, Any]]) -> int:
    """How many images they hold."""
    return sum(
        isinstance(part, dict) and part.get("type") == "image_url"
        for message in messages
        for part in _list(message.get("content"))
    )


def _message(message: dict[str, Any], at: str, names: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role not in _ROLES:
        raise _wrong(at + ".role", f"the role is none of {', '.join(_ROLES)}")
    for name, value in message.items():
        if name not in _KNOWN and not (value is None or (name in _EMPTY and not value)):
            raise _wrong(f"{at}.{name}", f"not supported in a message: {name}")
    said: dict[str, Any] = {
        "role": "system" if role in SYSTEM else role,
        "content": _content(message.get("content"), role, at),
    }
    if message.get("refusal") and not said["content"]:
        said["content"] = str(message["refusal"])
    if message.get("name") and role != "tool":
        said["name"] = message["name"]
    if role == "assistant":
        said |= _assistant(message, at)
    elif message.get("content") is None:
        raise _wrong(at + ".content", "a message needs its content")
    if role == "tool":
        said |= _answered(message, at, names)
    return said


def _assistant(message: dict[str, Any], at: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if thoughts:
        said["reasoning_content"] = thoughts
    calls = _list(message.get("tool_calls"))
    for place, call in enumerate(calls):
        if not isinstance(call, dict) or not isinstance(_function(call).get("name"), str):
            raise _wrong(f"{at}.tool_calls.{place}", "a call needs a function with a name")
    if calls:
        said["tool_calls"] = [
            {"id": call.get("id", ""), "type": "function", "function": dict(_function(call))} for call in calls
        ]
    elif message.get("content") is None and not message.get("refusal"):
        raise _wrong(at + ".content", "a message needs its content, or calls")
    return said


def _answered(message: dict[str, Any], at: str, names: dict[str, Any]) -> dict[str, Any]:
    number = message.get("tool_call_id")
    if not isinstance(number, str):
        raise _wrong(at + ".tool_call_id", "the answer of a tool names its call")
    return {"tool_call_id": number, "name": message.get("name") or names.get(number, "")}


def _content(content: Any, role: Any, at: str) -> str | list[dict[str, Any]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(at + ".content", "content is a text or a list of parts")
    parts = [_part(part, role, f"{at}.content.{place}") for place, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: Any, role: Any, at: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    if kind == "image_url" and role == "user":
        return {"type": "image_url", "image_url": {"url": _address(part.get("image_url"), at)}}
    raise _wrong(at, f"not supported in a message of role {role}: a part of type {kind!r}")


def _address(image: Any, at: str) -> str:
    """Only what is in the request itself: nothing is ever fetched. `detail` makes no difference to a local model."""
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str) or not url.startswith("data:"):
        raise _wrong(at + ".image_url", "an image has to be in the request: data:image/png;base64,...")
    return url


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _wrong(at: str, reason: str) -> Refusal:
    return Refusal(400, f"{reason} (at {at})", param=at, code="invalid_value")
