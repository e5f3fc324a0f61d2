"""Content blocks of the protocol and parts of the core, both ways. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from acp_bridge.conversations.events import ImagePart, LinkPart, Part, ResourcePart, TextPart
from acp_bridge.faces.acp.errors import invalid
from acp_bridge.faces.acp.schema import Block, ImageBlock, LinkBlock, ResourceBlock, ResourceText, TextBlock


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
    more = _more(block, _KEPT)
    if kind == "text":
        return TextPart(text=_text(block, "text", at), more=more)
    if kind == "resource_link":
        uri = _text(block, "uri", at)
        return LinkPart(uri=uri, name=str(block.get("name") or uri), more=_more(block, _KEPT | _LINK_KEPT))
    if kind == "resource":
        return _resource(block.get("resource"), f"{at}.resource", more)
    if kind == "image":
        data, mime_type = _text(block, "data", at), _text(block, "mimeType", at)
        return ImagePart(data=data, mime_type=mime_type, more=_more(block, {**_KEPT, "uri": str}))
    raise invalid(f"{at}.type", f"content of type {kind!r} is not supported")


def _resource(resource: Any, at: str, more: dict[str, Any]) -> Part:
    if not isinstance(resource, dict):
        raise invalid(at, "expected an object")
    uri = _text(resource, "uri", at)
    mime_type = resource.get("mimeType")
    mime_type = mime_type if isinstance(mime_type, str) else ""
    if isinstance(resource.get("text"), str):
        return ResourcePart(uri=uri, text=resource["text"], mime_type=mime_type, more=more)
    return LinkPart(uri=uri, name=f"{uri} (binary)", more={**more, **({"mimeType": mime_type} if mime_type else {})})


#: What editors may say of a block besides its content, and its type; anything else is not ours to repeat.
_KEPT: dict[str, type] = {"_meta": dict, "annotations": dict}
_LINK_KEPT: dict[str, type] = {"mimeType": str, "title": str, "description": str, "size": int}


def _more(block: dict[str, Any], kept: dict[str, type]) -> dict[str, Any]:
    return {key: block[key] for key, kind in kept.items() if isinstance(block.get(key), kind)}


def _text(block: dict[str, Any], key: str, at: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise invalid(f"{at}.{key}", "expected a string")
    return value


def block_of(part: Part) -> dict[str, Any]:
    """The block that shows a part again, in a replay, with what the editor said of it."""
    plain: dict[str, Any] = msgspec.to_builtins(_block(part))
    return {**plain, **part.more}


def _block(part: Part) -> Block:
    if isinstance(part, TextPart):
        return TextBlock(text=part.text)
    if isinstance(part, LinkPart):
        return LinkBlock(name=part.name, uri=part.uri)
    if isinstance(part, ResourcePart):
        mime_type = part.mime_type or UNSET
        return ResourceBlock(resource=ResourceText(uri=part.uri, text=part.text, mime_type=mime_type))
    return ImageBlock(data=part.data, mime_type=part.mime_type)
