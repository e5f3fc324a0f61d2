"""The files of a conversation as its tools see them: through the editor when it offers that, else on disk."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from acp_bridge.conversations.face import ToolFailed
from acp_bridge.tools import paths
from acp_bridge.tools.consent.protected_places import reason_to_ask
from shared.system.content import replace_content_in

if sys.platform == "win32":
    from acp_bridge.tools.parent_folder_windows import parent_folder
else:
    from acp_bridge.tools.parent_folder import parent_folder

if TYPE_CHECKING:
    from acp_bridge.conversations.face import Face

#: Larger files are read by parts only.
READ_LIMIT = 2 * 1024 * 1024
#: What a cancelled write may still take. Seconds.
WRITE_S = 0.3
ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Workspace:
    """`roots` are absolute, the working folder first. `limit` is how many characters one result may have.

    `secrets` names the variables of the environment that no command is given.
    """

    def __init__(
        self,
        conversation: str,
        roots: Sequence[str],
        face: Face,
        limit: int,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self.conversation = conversation
        self.roots = list(roots)
        self.face = face
        self.limit = limit
        self.secrets = secrets

    def resolve(self, path: str) -> Path:
        """See acp_bridge.tools.paths.resolve."""
        return paths.resolve(path, self.roots)

    def locate(self, path: str) -> paths.Location:
        """See acp_bridge.tools.paths.locate."""
        return paths.locate(path, self.roots)

    async def reason_to_ask(self, path: str, place: paths.Location) -> str:
        """See acp_bridge.tools.consent.protected_places.reason_to_ask."""
        return await anyio.to_thread.run_sync(reason_to_ask, path, place.path, self.roots, abandon_on_cancel=True)

    def shown(self, path: Path) -> str:
        """See acp_bridge.tools.paths.shown."""
        return paths.shown(path, self.roots)

    async def read(self, path: Path) -> str:
        """The text of a file, unsaved changes included where the editor gives them. Raises ToolFailed."""
        if self.face.reads_files:
            return await self.face.read_file(self.conversation, str(path))
        return await anyio.to_thread.run_sync(read_text, path, abandon_on_cancel=True)

    async def excerpt(self, path: Path) -> tuple[str, bool]:
        """The text of a file of any size within the limit, and whether something of it is left out.

        Raises ToolFailed for what is no readable text.
        """
        if self.face.reads_files:
            text, whole = await self.read(path), True
        else:
            text, whole = await anyio.to_thread.run_sync(read_ends, path, self.limit, abandon_on_cancel=True)
        cut = self.cut(text)
        return cut, cut != text or not whole

    async def read_or_none(self, path: Path) -> str | None:
        """The text of a file, None when there is no such file, nor text for it in the editor. Raises ToolFailed."""
        try:
            there = await anyio.to_thread.run_sync(path.exists, abandon_on_cancel=True)
        except OSError as error:
            raise ToolFailed(f"{path.name} cannot be looked at: {error.strerror}") from error
        if there:
            return await self.read(path)
        if not self.face.reads_files:
            return None
        try:
            return await self.read(path) or None  # never saved, but open in the editor
        except ToolFailed:
            return None  # the editor does not have it either

    async def read_exact(self, path: Path) -> str:
        """The text of a file that is to be written back. Raises ToolFailed where it would not come back the same."""
        if not self.face.reads_files:
            await anyio.to_thread.run_sync(check_encoding, path, abandon_on_cancel=True)
        return await self.read(path)

    async def write(self, place: paths.Location, text: str) -> None:
        """Replace or create a file at the place it was resolved to, or nowhere. Raises ToolFailed.

        An editor that gives no text of its own is not written through: its unsaved text would be lost unseen, where a
        file that changes on disk is a conflict that it shows.
        """
        if self.face.writes_files and self.face.reads_files:
            await anyio.to_thread.run_sync(check_place, place, abandon_on_cancel=True)
            await self.face.write_file(self.conversation, str(place.path), text)
        else:
            await _to_its_end(partial(write_text, place, text))

    def cut(self, text: str) -> str:
        """The text within the limit, its middle left out and said. Names of files may hold what no text can."""
        text = text.encode("utf-8", "replace").decode()
        if len(text) <= self.limit:
            return text
        half = self.limit // 2
        left = len(text) - 2 * half
        return f"{text[:half]}\n[... {left} characters left out ...]\n{text[-half:]}"


async def _to_its_end(write: Callable[[], None]) -> None:
    """Run a write in a thread. Who cancels it waits a moment for its end, and no longer: a disk may never answer."""
    done = threading.Event()

    def run() -> None:
        try:
            write()
        finally:
            done.set()

    try:
        await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(done.wait, WRITE_S)
        raise


def read_text(path: Path) -> str:
    """Raises ToolFailed for what is no readable text file of bearable size."""
    try:
        if not path.is_file():
            raise ToolFailed(f"{path.name} is {'a folder' if path.is_dir() else 'not there'}")
        if path.stat().st_size > READ_LIMIT:
            raise ToolFailed(f"{path.name} is over {READ_LIMIT} bytes; search in it instead")
        data = path.read_bytes()
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror}") from error
    if b"\0" in data[:8192]:
        raise ToolFailed(f"{path.name} is not text")
    return data.decode("utf-8", "replace")


def check_encoding(path: Path) -> None:
    """Raises ToolFailed for a file that is not UTF-8: what `read_text` put in its place would be written back."""
    try:
        if path.is_file() and path.stat().st_size <= READ_LIMIT:
            path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{path.name} is not UTF-8 text; an edit here would damage it") from error
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror}") from error


def read_ends(path: Path, limit: int) -> tuple[str, bool]:
    """The whole text of a file, or of one over READ_LIMIT its beginning and end; whether it is whole.

    Raises ToolFailed for what is no readable text file.
    """
    try:
        size = path.stat().st_size if path.is_file() else 0
        if size <= READ_LIMIT:
            return read_text(path), True
        with path.open("rb") as file:
            begin = file.read(limit // 2)
            file.seek(-(limit // 2), os.SEEK_END)
            end = file.read()
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror}") from error
    if b"\0" in begin:
        raise ToolFailed(f"{path.name} is not text")
    left = size - len(begin) - len(end)
    first, last = begin.decode("utf-8", "replace"), end.decode("utf-8", "replace")
    return f"{first}\n[... {left} bytes left out ...]\n{last}", False


def check_place(place: paths.Location) -> None:
    """Raises ToolFailed for a path that leads elsewhere than when it was resolved."""
    try:
        place.require_same()
    except OSError as error:
        raise ToolFailed(f"{place.path.name} cannot be written: {error.strerror}") from error


def write_text(place: paths.Location, text: str) -> None:
    """Write a file, keeping all but its content. Raises ToolFailed, also for one that nobody may write: moving over it
    needs no right to it.
    """
    name = place.path.name
    try:
        data = text.encode("utf-8")
        with parent_folder(place) as (folder, file):
            if _read_only(folder, file):
                raise ToolFailed(f"{name} is read-only")
            replace_content_in(folder, file, data)
    except UnicodeEncodeError as error:
        raise ToolFailed(f"{name} cannot be written: the text has half of a character in it") from error
    except OSError as error:
        raise ToolFailed(f"{name} cannot be written: {error.strerror}") from error


def _read_only(folder: int | None, file: str) -> bool:
    try:
        mode = os.stat(file, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    return not mode & ANY_WRITE or not os.access(file, os.W_OK, dir_fd=folder)
