"""Paths a tool may touch: inside the workspace roots, with links resolved. Reads the disk for links alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acp_bridge.session.face import ToolFailed


def resolve(path: str, roots: Sequence[str]) -> Path:
    """The real path that `path` (relative to the first root, or absolute) means.

    Raises ToolFailed when it leaves every root, by `..` or by a link, also for what does not exist yet.
    """
    if not path or "\0" in path:
        raise ToolFailed("a path is needed")
    wanted = Path(os.path.realpath(Path(roots[0]) / _expanded(path)))
    for root in roots:
        if wanted.is_relative_to(os.path.realpath(root)):
            return wanted
    raise ToolFailed(f"{path} is outside of the workspace ({', '.join(roots)})")


def _expanded(path: str) -> Path:
    """With the home folder put in; a name that only begins like one (`~draft.txt`) is a name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def shown(path: Path, roots: Sequence[str]) -> str:
    """The path as people read it: relative to its root when it lies in one."""
    for root in roots:
        real = os.path.realpath(root)
        if path.is_relative_to(real):
            return path.relative_to(real).as_posix() or "."
    return path.as_posix()
