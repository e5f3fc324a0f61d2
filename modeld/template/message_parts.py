"""The parts of a message's content, as conversations have them: which are words, and which are images. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Kinds of parts that are words, and the field that has them.
WORDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
IMAGE = "image_url"


def kind_of(part: Any) -> str:
    """What a part says that it is; words where it says nothing."""
    return str(part.get("type", "text")) if isinstance(part, dict) else "text"


def text_of(part: Any) -> str:
    """The words of one part, "" where it has none."""
    return str(part.get(WORDS.get(kind_of(part), "text")) or "") if isinstance(part, dict) else str(part)


def holds_images(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether any part of the conversation is an image."""
    contents = [message.get("content") for message in messages]
    return any(kind_of(part) == IMAGE for content in contents if isinstance(content, list) for part in content)
