"""A change of one file: shown as a diff, made at once or not at all, with a copy of what was there."""

from __future__ import annotations

import difflib
import os
import time
from pathlib import Path

import msgspec

from shared.system.content import replace_content


class Moved(Exception):
    """The file is not what it was when the change was prepared."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is None for a file that is not there, `after` for one that goes."""

    path: Path
    before: str | None
    after: str | None

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after

    def diff(self) -> str:
        """For people: a unified diff, "" when nothing changes."""
        old = (self.before or "").splitlines(keepends=True)
        new = (self.after or "").splitlines(keepends=True)
        lines = difflib.unified_diff(old, new, str(self.path), str(self.path), n=2)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)


def current(path: Path) -> str | None:
    """What a file holds, its line endings kept; None when it is not there. Raises OSError, UnicodeDecodeError."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None


def apply(change: FileChange) -> Path | None:
    """Make it; the path of the copy of what was there, if anything was. Raises Moved, OSError.

    A link (settings kept in a folder of dotfiles) stays a link: the file it leads to is changed.
    """
    target = Path(os.path.realpath(change.path))
    if current(target) != change.before:
        raise Moved(f"{change.path} was changed by somebody else in the meantime; run this again")
    backup = _keep(target) if change.before is not None else None
    if change.after is None:
        target.unlink(missing_ok=True)
        return backup
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_content(target, change.after.encode("utf-8"), new_mode=0o600)
    return backup


def _keep(target: Path) -> Path:
    """A copy beside the file, under a name that is not taken, readable by the same people."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    for number in range(1000):
        copy = target.with_name(f"{target.name}.{stamp}{f'-{number}' if number else ''}.backup")
        try:
            descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(target.read_bytes())
        os.chmod(copy, target.stat().st_mode & 0o7777)
        return copy
    raise FileExistsError(f"{target}: a thousand copies of one second")
