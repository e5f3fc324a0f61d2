"""Tokens of a conversation with a remote model: weighed by its text, set right by what the endpoint counted. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from shared.protocol import api

#: Tokens of a character in the tokenizers of today: of English prose about 1/4.3, of code about 1/3.3; letters of other
#: scripts are between 1/2 and 1. Only the start of a calibration: a count of the endpoint itself replaces it.
PLAIN, OTHER = 0.27, 0.8
#: A message's marks in the usual chat templates.
MESSAGE = 6.0
#: Models make about this many tokens of an image, whatever its bytes.
IMAGE = 1024.0
#: On top of a count that is calculated: the next text may be denser than the last.
SAFETY = 1.05
#: A calibration further off than this is a server that counts something else (a hidden prompt, a cut one).
LEAST, MOST = 0.2, 5.0


class Calibration:
    """What one token of one model weighs, from the counts that came with its answers."""

    def __init__(self) -> None:
        self.ratio: float | None = None

    def learn(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], tokens: int) -> None:
        """The endpoint counted `tokens` for these. The last count stands: it is of the longest conversation."""
        weighed = sum(weights(messages)) + tools_weight(tools)
        if tokens > 0 and weighed > 0:
            self.ratio = min(max(tokens / weighed, LEAST), MOST)

    def learn_more_than(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], least: int) -> None:
        """These were too many for a window of `least` tokens, so they are more."""
        if self.count(messages, tools).total <= least:
            self.learn(messages, tools, least + 1)

    def count(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> api.CountResult:
        """Tokens of each message and of the whole, as far as they are known."""
        ratio = SAFETY * (self.ratio or 1.0)
        each = [math.ceil(weight * ratio) for weight in weights(messages)]
        return api.CountResult(each=each, total=sum(each) + math.ceil(tools_weight(tools) * ratio))


def apportioned(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], total: int) -> api.CountResult:
    """`total` tokens, as a tokenizer counted them, spread over the messages by their weight."""
    weighed = weights(messages)
    whole = sum(weighed) + tools_weight(tools)
    ratio = total / whole if whole else 0.0
    return api.CountResult(each=[math.ceil(weight * ratio) for weight in weighed], total=total)


def weights(messages: Sequence[dict[str, Any]]) -> list[float]:
    """What each message weighs, in tokens of a model of which nothing is known."""
    return [MESSAGE + _weight(message) for message in messages]


def tools_weight(tools: Sequence[dict[str, Any]]) -> float:
    """Of the tools' definitions, which templates write out."""
    return text_weight(msgspec.json.encode(tools).decode()) if tools else 0.0


def text_weight(text: str) -> float:
    """Of one text."""
    plain = len(text.encode("ascii", "ignore"))
    return plain * PLAIN + (len(text) - plain) * OTHER


def plain_text(messages: Sequence[dict[str, Any]]) -> str:
    """The texts of a conversation, for a tokenizer that knows no messages."""
    return "\n".join(text for message in messages for text in _texts(message))


def _weight(message: dict[str, Any]) -> float:
    content = message.get("content")
    images = [part for part in content if part.get("type") == "image_url"] if isinstance(content, list) else []
    return sum(text_weight(text) for text in _texts(message)) + IMAGE * len(images)


def _texts(message: dict[str, Any]) -> list[str]:
    """What a template writes out of a message: its texts, its thoughts, its calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    found = [part.get("text") for part in parts] + [message.get("reasoning_content")]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        found += [function.get("name"), function.get("arguments")]
    return [text for text in found if isinstance(text, str)]
