"""What of a conversation is sent when it no longer fits the window: whole exchanges leave from its head. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.errors import ContextOverflow

#: After dropping, this part of the window is filled, so that the next turns keep the same head (and its warm KV).
FILL = 0.6
#: Kept free for the answer: a quarter of the window, at most this many tokens.
ANSWER_RESERVE = 1024
#: No tokenizer makes fewer characters of a token than this on average, so an estimate below the window is safe.
CHARS_PER_TOKEN = 2.0
#: Models make about this many tokens of an image, whatever its bytes.
IMAGE_TOKENS = 1024


def reserve(window: int) -> int:
    """Tokens kept free for the answer in a window of `window` tokens."""
    return min(window // 4, ANSWER_RESERVE)


def estimate(messages: Sequence[dict[str, Any]]) -> int:
    """An upper estimate of the tokens, cheap enough for every turn."""
    return int(sum(_tokens(message.get("content")) + 16 for message in messages))


def _tokens(content: object) -> float:
    if not isinstance(content, list):
        return len(str(content or "")) / CHARS_PER_TOKEN
    images = [part for part in content if part.get("type") == "image_url"]
    texts = [str(part.get("text", "")) for part in content]
    return len(images) * IMAGE_TOKENS + len("".join(texts)) / CHARS_PER_TOKEN


def starts(messages: Sequence[dict[str, Any]]) -> list[int]:
    """Where exchanges begin: the places of user messages. Only there may the head be cut."""
    return [place for place, message in enumerate(messages) if message["role"] == "user"]


def drop(messages: Sequence[dict[str, Any]], each: Sequence[int], total: int, window: int) -> int:
    """How many messages leave at the head so that the rest fits.

    `each` are the tokens of the messages alone and `total` of the whole as it would be sent, `window` all in tokens.
    Returns 0 when everything fits. Raises ContextOverflow when the last exchange alone does not.
    """
    limit = window - reserve(window)
    if total <= limit:
        return 0
    overhead = max(0, total - sum(each))
    candidates = [place for place in starts(messages) if place > 0]
    for place in candidates:
        if overhead + sum(each[place:]) <= limit * FILL:
            return place
    if candidates and overhead + sum(each[candidates[-1] :]) <= limit:
        return candidates[-1]
    last = candidates[-1] if candidates else 0
    raise ContextOverflow(context=window, resident=0, additional=overhead + sum(each[last:]))


def head_length(messages: Sequence[dict[str, Any]]) -> int:
    """How many messages at the head are the system's: they are never left out."""
    for place, message in enumerate(messages):
        if message["role"] != "system":
            return place
    return len(messages)
