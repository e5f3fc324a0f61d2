"""Content blocks of the protocol and parts of the core, both ways. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp_bridge.acp.errors import invalid
from acp_bridge.acp.schema import Block, ImageBlock, LinkBlock, ResourceBlock, ResourceText, TextBlock
from acp_bridge.session.events import ImagePart, LinkPart, Part, ResourcePart, TextPart


def parts_of(blocks: Sequence[dict[str, Any]]) -> list[Part]:
    """The user's message. Raises InvalidParams, naming the block; what is beyond the baseline is refused by name."""
    parts = [_part(block, f"prompt[{place}]") for place, block in enumerate(blocks)]
    if not any(_says_something(part) for part in parts):
        raise invalid("prompt", "the prompt holds no text")
    return parts


def _says_something(part: Part) -> bool:
    return not isinstance(part, TextPart) or bool(part.text.strip())


def _part(block: dict[str, Any], at: str) -> Part:
    kind = block.get("type")
    if kind == "text":
        return TextPart(text=_text(block, "text", at))
    if kind == "resource_link":
        uri = _text(block, "uri", at)
        return LinkPart(uri=uri, name=str(block.get("name") or uri))
    if kind == "resource":
        return _resource(block.get("resource"), f"{at}.resource")
    if kind == "image":
        return ImagePart(data=_text(block, "data", at), mime_type=_text(block, "mimeType", at))
    raise invalid(f"{at}.type", f"content of type {kind!r} is not supported")


def _resource(resource: Any, at: str) -> Part:
    if not isinstance(resource, dict):
        raise invalid(at, "expected an object")
    uri = _text(resource, "uri", at)
    if isinstance(resource.get("text"), str):
        return ResourcePart(uri=uri, text=resource["text"], mime_type=str(resource.get("mimeType") or ""))
    return LinkPart(uri=uri, name=f"{uri} (binary)", text=None)


def _text(block: dict[str, Any], key: str, at: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise invalid(f"{at}.{key}", "expected a string")
    return value


def block_of(part: Part) -> Block:
    """The block that shows a part again, in a replay."""
    if isinstance(part, TextPart):
        return TextBlock(text=part.text)
    if isinstance(part, LinkPart):
        return LinkBlock(name=part.name, uri=part.uri)
    if isinstance(part, ResourcePart):
        return ResourceBlock(resource=ResourceText(uri=part.uri, text=part.text))
    return ImageBlock(data=part.data, mime_type=part.mime_type)
