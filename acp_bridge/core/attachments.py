"""Reads what a message refers to, once, when it is sent: the model sees files as they were then, and KV stays warm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from acp_bridge.conversations.events import LinkPart, Part, ResourcePart
from acp_bridge.conversations.face import ToolFailed

if TYPE_CHECKING:
    from acp_bridge.tools.workspace import Workspace


async def attached(parts: Sequence[Part], workspace: Workspace) -> tuple[list[Part], list[str]]:
    """The parts with the text of each link that is a file in the workspace, and the names of those that are excerpts.

    A file that is larger than the workspace's limit goes in with its beginning and end, one that the editor put in
    too. What cannot be read, or lies elsewhere, stays a link: the baseline is never refused.
    """
    read = [await _read(part, workspace) for part in parts]
    return [part for part, _ in read], [name for _, name in read if name]


async def _read(part: Part, workspace: Workspace) -> tuple[Part, str]:
    """The part, and its name when it was cut."""
    if isinstance(part, ResourcePart):
        text = workspace.cut(part.text)
        return msgspec.structs.replace(part, text=text), name_of(part.uri) if text != part.text else ""
    path = path_of(part.uri) if isinstance(part, LinkPart) else None
    if not isinstance(part, LinkPart) or path is None:
        return part, ""
    try:
        text, cut = await workspace.excerpt(workspace.resolve(path))
    except ToolFailed:
        return part, ""
    return msgspec.structs.replace(part, text=text), part.name if cut else ""


def excerpts(names: Sequence[str]) -> str:
    """The sentence that says what the model gets in part only."""
    which = ", ".join(dict.fromkeys(names))
    return (
        f"{which}: too large for this model's window, so it gets the beginning and the end; it can read on by itself."
    )


def name_of(uri: str) -> str:
    """The last part of an address, for people."""
    return unquote(uri.rstrip("/").rpartition("/")[2]) or uri


def path_of(uri: str) -> str | None:
    """The path that a file URI or a bare path names, else None."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None  # no address at all (`http://[x`)
    if parts.scheme == "file":
        path = unquote(parts.path)
        return path[1:] if len(path) > 2 and path[2] == ":" else path
    return uri if uri.startswith("/") else None
