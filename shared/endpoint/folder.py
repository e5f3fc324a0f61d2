"""The private folder that sockets stand in: owned by us, 0700, no link, and short enough a path.

The folder is the barrier against other users; the socket's own mode is the second one.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shared.endpoint.faults import FolderUnusable
from shared.system import private

if TYPE_CHECKING:
    from shared.paths import DataRoot

#: Longest path of a socket in bytes. sun_path holds 107 on Linux and 103 on macOS.
PATH_LIMIT = 100
#: `/m-<8 hex>.sock`, in bytes.
_NAME_BYTES = 16


class RuntimeFolder:
    """Where this user's sockets go. Nothing is created before `ensure`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"RuntimeFolder({str(self.path)!r})"

    def ensure(self) -> None:
        """Create it, or check it and repair its mode. Raises FolderUnusable.

        On Windows nothing stands in it: pipes have names of their own.
        """
        if sys.platform == "win32":
            return
        _refuse_long(self.path)
        make_private(self.path)

    def intact(self) -> bool:
        """Whether the folder is there and still private."""
        try:
            return problem(self.path) is None
        except OSError:
            return False


def runtime_folder(root: DataRoot, environ: Mapping[str, str] = os.environ) -> RuntimeFolder:
    """Choose the folder: XDG_RUNTIME_DIR if private, the data root if short enough, else one in /tmp.

    On Windows pipes have no folder; the data root stands for it.
    """
    if sys.platform == "win32":
        return RuntimeFolder(root.path)
    declared = environ.get("XDG_RUNTIME_DIR", "")
    candidates = []
    if os.path.isabs(declared) and _is_private(Path(declared)):
        candidates.append(Path(declared) / "modeld")
    candidates.append(root.path / "run")
    for candidate in candidates:
        if _fits(candidate):
            return RuntimeFolder(candidate)
    return RuntimeFolder(Path("/tmp") / f"modeld-{os.geteuid()}")  # noqa: S108  made private or refused


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """This user's own runtime folder, whatever data root is in use: where two of them meet. Not made here.

    The login session's where it is private, also when its variable is missing (ssh, cron); else one in /tmp.
    """
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or Path.home()) / "modeld" / "run"
    declared = environ.get("XDG_RUNTIME_DIR", "")
    for candidate in (declared, f"/run/user/{os.geteuid()}"):
        if os.path.isabs(candidate) and _is_private(Path(candidate)):
            return Path(candidate) / "modeld"
    return Path("/tmp") / f"modeld-{os.geteuid()}"  # noqa: S108  made private or refused


def make_private(path: Path) -> None:
    """Make `path` a folder that only this user can enter. Raises FolderUnusable.

    An existing one of ours with a wider mode is repaired; a link, another kind of file or another
    user's folder is refused: it may have been put there to catch us. Windows has no modes: made only.
    """
    try:
        private.folder(path.parent)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            found = problem(path)
            if found is None:
                return
            if found != _MODE:
                raise FolderUnusable(str(path), found) from None
        path.chmod(0o700)  # also where the umask took bits away
        found = problem(path)
    except OSError as error:
        raise FolderUnusable(str(path), error.strerror or errno.errorcode.get(error.errno or 0, "?")) from error
    if found is not None:
        raise FolderUnusable(str(path), found)


_MODE = "its mode lets others in"


def problem(path: Path) -> str | None:
    """What makes a folder not private, in words, or None. Raises OSError when it cannot be looked at."""
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(facts.st_mode):
        return "it is not a folder"
    if sys.platform != "win32" and facts.st_uid != os.geteuid():
        return f"it belongs to uid {facts.st_uid}"
    if sys.platform != "win32" and facts.st_mode & 0o077:
        return _MODE
    return None


def _is_private(path: Path) -> bool:
    try:
        return problem(path) is None
    except OSError:
        return False


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) + _NAME_BYTES < PATH_LIMIT


def _refuse_long(folder: Path) -> None:
    if not _fits(folder):
        raise FolderUnusable(str(folder), f"a socket's path there would be over {PATH_LIMIT} bytes")
