"""The tools that change files: edit_file by exact match, write_file. Both show the diff before they ask."""

from __future__ import annotations

from typing import Any

from acp_bridge.conversations.events import Change, FileLocation
from acp_bridge.conversations.face import ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems, parameters
from acp_bridge.tools.consent.grants import EDITS
from acp_bridge.tools.paths import Location
from acp_bridge.tools.read_tools import text
from acp_bridge.tools.workspace import Workspace
from shared.text.shown import one_line

#: A longer path is cut in titles, so that what stands behind it is seen.
NAME_LENGTH = 120
BYTE_ORDER_MARK = "\ufeff"


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
        place = workspace.locate(text(arguments, "path"))
        old, new = text(arguments, "old"), arguments.get("new")
        if not isinstance(new, str):
            raise ToolFailed("`new` is needed, as text")
        before = await workspace.read_exact(place.path)
        after, line = replaced(before, old, new)
        return await _change(workspace, arguments["path"], place, (before, after), "Edit", line)


class WriteFile:
    """Writes a whole file."""

    name = "write_file"
    description = "Write a whole file: a new one, or all of an existing one."
    parameters = parameters(
        ["path", "content"], path=("string", "path of the file"), content=("string", "everything that is to be in it")
    )
    changes = True

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        place = workspace.locate(text(arguments, "path"))
        content = arguments.get("content")
        if not isinstance(content, str):
            raise ToolFailed("`content` is needed, as text")
        before = await workspace.read_or_none(place.path)
        content = content if before is None else written_like(before, content)
        verb = "Create" if before is None else "Write"
        return await _change(workspace, arguments["path"], place, (before, content), verb, None)


def replaced(before: str, old: str, new: str) -> tuple[str, int]:
    """The new text, and the line of the change from 1. Raises ToolFailed unless `old` is there exactly once.

    The file keeps its line ends, whichever ends the model wrote.
    """
    if old not in before:
        for other in (_plain, _windows):
            if other(old) in before:
                old, new = other(old), other(new)
                break
    at = before.find(old)
    if at < 0:
        raise ToolFailed("`old` is not in the file; read it again and copy the exact text")
    if before.find(old, at + 1) >= 0:  # also where two of them share letters
        raise ToolFailed("`old` is in the file more than once; give more lines around the one you mean")
    new = _with_ends_of(old if "\n" in old else before, new)
    if old == new:
        raise ToolFailed("`old` and `new` are the same")
    return before[:at] + new + before[at + len(old) :], before.count("\n", 0, at) + 1


def written_like(before: str, content: str) -> str:
    """A whole file rewritten, with the line ends and the byte order mark of what it was."""
    mark = BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else ""
    return mark + _with_ends_of(before, content.removeprefix(BYTE_ORDER_MARK))


def _with_ends_of(sample: str, text: str) -> str:
    """`text` with Windows line ends where most lines of `sample` have them: no model writes those by itself."""
    windows = sample.count("\r\n")
    return _windows(text) if windows > sample.count("\n") - windows else text


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _windows(text: str) -> str:
    return _plain(text).replace("\n", "\r\n")


async def _change(
    workspace: Workspace, asked: str, place: Location, texts: tuple[str | None, str], verb: str, line: int | None
) -> Plan:
    """`asked` is the path as the model wrote it; `texts` are the file's before (None: there is none) and after."""
    path, (before, after) = place.path, texts
    reason = await workspace.reason_to_ask(asked, place)

    async def effect(show: ShowItems) -> Outcome:
        # the file may have changed while the user was asked
        if await workspace.read_or_none(path) != before:
            raise ToolFailed("the file changed meanwhile; read it again")
        await workspace.write(place, after)
        return Outcome(text=f"{workspace.shown(path)} is written.")

    what = f"{verb} {one_line(workspace.shown(path), NAME_LENGTH)}"
    return Plan(
        title=f"{what} ({reason})" if reason else what,
        kind="edit",
        locations=[FileLocation(path=str(path), line=line)],
        items=[Change(path=str(path), old=before, new=after)],
        effect=effect,
        grant=None if reason else EDITS,
    )
