"""The folders of a session, checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from acp_bridge.acp.errors import invalid


def checked_folders(cwd: str, more: Sequence[str] | None) -> list[str]:
    """The additional folders. Raises InvalidParams for one (or a cwd) that is not absolute."""
    roots = list(more or [])
    for at, folder in [("cwd", cwd), *((f"additionalDirectories[{n}]", root) for n, root in enumerate(roots))]:
        if not (PurePosixPath(folder).is_absolute() or PureWindowsPath(folder).is_absolute()):
            raise invalid(at, f"{folder!r} is not an absolute path")
    return roots
