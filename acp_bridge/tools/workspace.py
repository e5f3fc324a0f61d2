"""The files of a conversation as its tools see them: through the editor when it offers that, else on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from acp_bridge.session.face import ToolFailed
from acp_bridge.tools import paths
from shared.content import replace_content

if TYPE_CHECKING:
    from acp_bridge.session.face import Face

#: Larger files are read by parts only.
READ_LIMIT = 2 * 1024 * 1024
ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Workspace:
    """`roots` are absolute, the working folder first. `limit` is how many characters one result may have."""

    def __init__(self, conversation: str, roots: Sequence[str], face: Face, limit: int) -> None:
        self.conversation = conversation
        self.roots = list(roots)
        self.face = face
        self.limit = limit

    def resolve(self, path: str) -> Path:
        """See acp_bridge.tools.paths.resolve."""
        return paths.resolve(path, self.roots)

    def shown(self, path: Path) -> str:
        """See acp_bridge.tools.paths.shown."""
        return paths.shown(path, self.roots)

    async def read(self, path: Path) -> str:
        """The text of a file, unsaved changes included where the editor gives them. Raises ToolFailed."""
        if self.face.reads_files:
            return await self.face.read_file(self.conversation, str(path))
        return await anyio.to_thread.run_sync(read_text, path)

    async def excerpt(self, path: Path) -> tuple[str, bool]:
        """The text of a file of any size within the limit, and whether something of it is left out.

        Raises ToolFailed for what is no readable text.
        """
        if self.face.reads_files:
            text, whole = await self.read(path), True
        else:
            text, whole = await anyio.to_thread.run_sync(read_ends, path, self.limit)
        cut = self.cut(text)
        return cut, cut != text or not whole

    async def read_or_none(self, path: Path) -> str | None:
        """The text of a file, None when there is no such file. Raises ToolFailed."""
        try:
            there = await anyio.to_thread.run_sync(path.exists)
        except OSError as error:
            raise ToolFailed(f"{path.name} cannot be looked at: {error.strerror}") from error
        return await self.read(path) if there else None

    async def read_exact(self, path: Path) -> str:
        """The text of a file that is to be written back. Raises ToolFailed where it would not come back the same."""
        if not self.face.reads_files:
            await anyio.to_thread.run_sync(check_encoding, path)
        return await self.read(path)

    async def write(self, path: Path, text: str) -> None:
        """Replace or create a file. Raises ToolFailed."""
        if self.face.writes_files:
            await self.face.write_file(self.conversation, str(path), text)
        else:
            await anyio.to_thread.run_sync(write_text, path, text)

    def cut(self, text: str) -> str:
        """The text within the limit, its middle left out and said. Names of files may hold what no text can."""
        text = text.encode("utf-8", "replace").decode()
        if len(text) <= self.limit:
            return text
        half = self.limit // 2
        left = len(text) - 2 * half
        return f"{text[:half]}\n[... {left} characters left out ...]\n{text[-half:]}"


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


def write_text(path: Path, text: str) -> None:
    """Write a file, keeping all but its content. Raises ToolFailed, also for one that nobody may write: moving over it
    needs no right to it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and (not path.stat().st_mode & ANY_WRITE or not os.access(path, os.W_OK)):
            raise ToolFailed(f"{path.name} is read-only")
        replace_content(path, text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ToolFailed(f"{path.name} cannot be written: the text has half of a character in it") from error
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be written: {error.strerror}") from error
