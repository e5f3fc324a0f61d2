"""Paths a tool may touch: inside the workspace roots, with links resolved. Reads the disk for links alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from acp_bridge.conversations.face import ToolFailed


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path led when it was resolved, to be held to when the file is written.

    `path` is real, and so is `root`, the folder of the workspace that holds it; `identity` is that folder's device and
    number.
    """

    path: Path
    root: Path
    identity: tuple[int, int]

    @property
    def below(self) -> tuple[str, ...]:
        """The names that lead from `root` to the file, at least one."""
        return self.path.relative_to(self.root).parts

    def moved(self, what: str) -> ToolFailed:
        """The error for a path that leads elsewhere now, because of `what`."""
        return ToolFailed(
            f"{self.path.name} was not written: {what} was replaced after it was checked, and may lead elsewhere now. "
            "Look at the folder, then try again"
        )

    def require_same(self) -> None:
        """Raises ToolFailed when the path leads elsewhere now, OSError when the workspace has gone."""
        found = os.stat(self.root)
        if Path(os.path.realpath(self.path)) != self.path or (found.st_dev, found.st_ino) != self.identity:
            raise self.moved("a folder on its way")


def resolve(path: str, roots: Sequence[str]) -> Path:
    """The real path that `path` (relative to the first root, or absolute) means.

    Raises ToolFailed when it leaves every root, by `..` or by a link, also for what does not exist yet.
    """
    return _resolved(path, roots)[0]


def locate(path: str, roots: Sequence[str]) -> Location:
    """The same for a file that is to be written. Raises ToolFailed."""
    wanted, root = _resolved(path, roots)
    if wanted == root:
        raise ToolFailed(f"{path} is a folder")
    try:
        found = os.stat(root)
    except OSError as error:
        raise ToolFailed(f"the workspace {root} cannot be used: {error.strerror}") from error
    return Location(path=wanted, root=root, identity=(found.st_dev, found.st_ino))


def _resolved(path: str, roots: Sequence[str]) -> tuple[Path, Path]:
    if not path or "\0" in path:
        raise ToolFailed("a path is needed")
    wanted = Path(os.path.realpath(spelled(path, roots)))
    for root in map(os.path.realpath, roots):
        if wanted.is_relative_to(root):
            return wanted, Path(root)
    raise ToolFailed(f"{path} is outside of the workspace ({', '.join(roots)})")


def spelled(path: str, roots: Sequence[str]) -> Path:
    """The absolute path as it was written, links and `..` in it."""
    return Path(roots[0]) / _expanded(path)


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
