"""Reads what a message refers to, once, when it is sent: the model sees files as they were then, and KV stays warm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from acp_bridge.session.events import LinkPart, Part
from acp_bridge.session.face import ToolFailed

if TYPE_CHECKING:
    from acp_bridge.tools.workspace import Workspace


async def attached(parts: Sequence[Part], workspace: Workspace) -> list[Part]:
    """The parts with the text of each link that is a file in the workspace; large files by excerpt.

    What cannot be read, or lies elsewhere, stays a link: the baseline is never refused.
    """
    return [await _read(part, workspace) if isinstance(part, LinkPart) else part for part in parts]


async def _read(part: LinkPart, workspace: Workspace) -> LinkPart:
    path = path_of(part.uri)
    if path is None:
        return part
    try:
        text = await workspace.read(workspace.resolve(path))
    except ToolFailed:
        return part
    return msgspec.structs.replace(part, text=workspace.cut(text))


def path_of(uri: str) -> str | None:
    """The path that a file URI or a bare path names, else None."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        path = unquote(parts.path)
        return path[1:] if len(path) > 2 and path[2] == ":" else path
    return uri if uri.startswith("/") else None
