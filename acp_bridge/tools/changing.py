"""The tools that change files: edit_file by exact match, write_file. Both show the diff before they ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acp_bridge.session.events import Change, Place
from acp_bridge.session.face import ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems, parameters
from acp_bridge.tools.looking import text
from acp_bridge.tools.workspace import Workspace

GRANT = "edit"


class EditFile:
    """Replaces one exact piece of a file."""

    name = "edit_file"
    description = "Replace a piece of a file. `old` must be in the file exactly once; give enough lines around it."
    parameters = parameters(
        ["path", "old", "new"],
        path=("string", "path of the file"),
        old=("string", "the exact text to replace, with its line breaks and spaces"),
        new=("string", "the text that takes its place"),
    )
    changes = True

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        path = workspace.resolve(text(arguments, "path"))
        old, new = text(arguments, "old"), arguments.get("new")
        if not isinstance(new, str):
            raise ToolFailed("`new` is needed, as text")
        before = await workspace.read_exact(path)
        after, line = replaced(before, old, new)
        return _change(workspace, path, before, after, f"Edit {workspace.shown(path)}", line)


class WriteFile:
    """Writes a whole file."""

    name = "write_file"
    description = "Write a whole file: a new one, or all of an existing one anew."
    parameters = parameters(
        ["path", "content"], path=("string", "path of the file"), content=("string", "everything that is to be in it")
    )
    changes = True

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        path = workspace.resolve(text(arguments, "path"))
        content = arguments.get("content")
        if not isinstance(content, str):
            raise ToolFailed("`content` is needed, as text")
        before = await workspace.read_or_none(path)
        verb = "Create" if before is None else "Write"
        return _change(workspace, path, before, content, f"{verb} {workspace.shown(path)}", None)


def replaced(before: str, old: str, new: str) -> tuple[str, int]:
    """The new text, and the line of the change from 1. Raises ToolFailed unless `old` is there exactly once.

    A file with Windows line ends keeps them, whichever ends the model wrote.
    """
    if "\r\n" in before and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    at = before.find(old)
    if at < 0:
        raise ToolFailed("`old` is not in the file; read it again and copy the exact text")
    if before.find(old, at + 1) >= 0:  # also where two of them share letters
        raise ToolFailed("`old` is in the file more than once; give more lines around the one you mean")
    if old == new:
        raise ToolFailed("`old` and `new` are the same")
    return before[:at] + new + before[at + len(old) :], before.count("\n", 0, at) + 1


def _change(workspace: Workspace, path: Path, before: str | None, after: str, title: str, line: int | None) -> Plan:
    async def effect(show: ShowItems) -> Outcome:
        # the file may have changed while the user was asked
        if await workspace.read_or_none(path) != before:
            raise ToolFailed("the file changed meanwhile; read it again")
        await workspace.write(path, after)
        return Outcome(text=f"{workspace.shown(path)} is written.")

    return Plan(
        title=title,
        kind="edit",
        places=[Place(path=str(path), line=line)],
        items=[Change(path=str(path), old=before, new=after)],
        effect=effect,
        grant=GRANT,
    )
