"""The tools that only look: read_file, list_folder, find_files, search_text."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from acp_bridge.conversations.events import FileLocation, TextItem
from acp_bridge.conversations.face import ToolFailed
from acp_bridge.process.child_process import ChildProcess, on_path
from acp_bridge.tools import paths
from acp_bridge.tools.base import Outcome, Plan, ShowItems, parameters
from acp_bridge.tools.workspace import Workspace, read_text
from shared.text.shown import code_span

#: Folders that hold what nobody wrote by hand.
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", "target", ".mypy_cache"})
MOST_FILES = 20_000
MOST_MATCHES = 100
READ_LINES = 400
SEARCH_LIMIT_S = 20.0


class ReadFile:
    """Lines of one file, with their numbers."""

    name = "read_file"
    description = "Read a text file of the workspace. Lines are numbered."
    parameters = parameters(
        ["path"],
        path=("string", "path of the file, relative to the workspace"),
        line=("integer", "first line to read, from 1"),
        limit=("integer", f"how many lines, {READ_LINES} when left out"),
    )
    changes = False

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        path = workspace.resolve(text(arguments, "path"))
        first = max(1, number(arguments, "line", 1))
        count = max(1, number(arguments, "limit", READ_LINES))

        async def effect(show: ShowItems) -> Outcome:
            lines = (await workspace.read(path)).splitlines()
            shown = [f"{place}\t{line}" for place, line in enumerate(lines[first - 1 : first - 1 + count], first)]
            rest = len(lines) - (first - 1 + len(shown))
            if rest > 0:
                shown.append(f"[{rest} more lines; read from line {first + len(shown)}]")
            return Outcome(text=workspace.cut("\n".join(shown) or "(the file is empty)"))

        place = FileLocation(path=str(path), line=first)
        return Plan(title=f"Read {workspace.shown(path)}", kind="read", locations=[place], effect=effect)


class ListFolder:
    """What is in a folder."""

    name = "list_folder"
    description = "List the files and folders in a folder of the workspace."
    parameters = parameters([], path=("string", "path of the folder, the workspace itself when left out"))
    changes = False

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        path = workspace.resolve(str(arguments.get("path") or "."))

        async def effect(show: ShowItems) -> Outcome:
            return Outcome(text=workspace.cut(await anyio.to_thread.run_sync(_listed, path, abandon_on_cancel=True)))

        place = FileLocation(path=str(path))
        return Plan(title=f"List {workspace.shown(path)}", kind="read", locations=[place], effect=effect)


class FindFiles:
    """Files by a pattern of their path."""

    name = "find_files"
    description = "Find files of the workspace by a glob pattern, for example **/*.py."
    parameters = parameters(["pattern"], pattern=("string", "glob pattern of the path"))
    changes = False

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        pattern = text(arguments, "pattern")

        async def effect(show: ShowItems) -> Outcome:
            found = await anyio.to_thread.run_sync(_matching, workspace, pattern, abandon_on_cancel=True)
            return Outcome(text=workspace.cut("\n".join(found) or "(no file matches)"))

        return Plan(title=f"Find {code_span(pattern)}", kind="search", effect=effect)


class SearchText:
    """Lines that match a regular expression."""

    name = "search_text"
    description = "Search the text of the workspace's files for a regular expression."
    parameters = parameters(
        ["pattern"],
        pattern=("string", "regular expression"),
        files=("string", "glob pattern of the files to search, all when left out"),
    )
    changes = False

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        pattern, files = text(arguments, "pattern"), str(arguments.get("files") or "")
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ToolFailed(f"not a regular expression: {error}") from error

        async def effect(show: ShowItems) -> Outcome:
            with anyio.move_on_after(SEARCH_LIMIT_S) as scope:
                found = await _search(workspace, compiled, files)
            if scope.cancelled_caught:
                raise ToolFailed(f"the search took longer than {SEARCH_LIMIT_S:.0f} s")
            shown = workspace.cut("\n".join(found) or "(nothing matches)")
            return Outcome(text=shown, items=[TextItem(text=shown)])

        return Plan(title=f"Search for {code_span(pattern)}", kind="search", effect=effect)


async def _search(workspace: Workspace, compiled: re.Pattern[str], files: str) -> list[str]:
    ripgrep = on_path("rg", None)
    if ripgrep is None or not os.path.isabs(ripgrep):  # a search asks nobody: it runs nothing out of the workspace
        return await _search_apart(workspace, compiled, files)
    command = [ripgrep, "--line-number", "--no-heading", "--color=never", "--max-columns=300", "--max-count=50"]
    command += ["--glob", files] if files else []
    command += ["--regexp", compiled.pattern, "--", "."]
    found: list[str] = []
    for place, root in enumerate(workspace.roots):
        done = await anyio.run_process(command, cwd=root, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode not in (0, 1):  # 1: nothing found; else a pattern that only Python knows
            return await _search_apart(workspace, compiled, files)
        lines = [line.removeprefix("./") for line in done.stdout.decode("utf-8", "replace").splitlines()]
        found += lines if place == 0 else [f"{root.rstrip('/')}/{line}" for line in lines]
        if len(found) >= MOST_MATCHES:
            break
    return found[:MOST_MATCHES]


async def _search_apart(workspace: Workspace, compiled: re.Pattern[str], files: str) -> list[str]:
    """In a process of its own: Python can match one line for ever, and lets nothing else run meanwhile."""
    child = ChildProcess()
    arguments = ["-P", "-m", "acp_bridge.tools.grep", compiled.pattern, files, *workspace.roots]
    output = bytearray()
    try:
        process = await child.spawn(
            sys.executable, arguments, cwd=workspace.roots[0], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except (OSError, ValueError) as error:  # a pattern that is too long, or holds a zero byte
        raise ToolFailed(f"the search cannot be run: {error}") from error
    try:
        assert process.stdout is not None
        async for data in process.stdout:
            output += data
        code = await child.wait()
    finally:
        child.end()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if code != 0:
        raise ToolFailed("the search failed")
    return output.decode("utf-8", "replace").splitlines()


def grep(roots: Sequence[str], compiled: re.Pattern[str], files: str) -> list[str]:
    """The lines that match, `name:line:text`. Links to files are not followed: they may lead out of the roots."""
    found: list[str] = []
    for path in _files(roots):
        name = paths.shown(path, roots)
        if path.is_symlink() or (files and not _matches(name, files)):
            continue
        try:
            lines = read_text(path).splitlines()
        except ToolFailed:
            continue  # binary, huge or unreadable: nothing to find in it
        found += [f"{name}:{place}:{line[:300]}" for place, line in enumerate(lines, 1) if compiled.search(line)]
        if len(found) >= MOST_MATCHES:
            break
    return found[:MOST_MATCHES]


def _matching(workspace: Workspace, pattern: str) -> list[str]:
    names = (workspace.shown(path) for path in _files(workspace.roots))
    return sorted(name for name in names if _matches(name, pattern))[:MOST_MATCHES]


def _matches(name: str, pattern: str) -> bool:
    """`**/` also means nothing at all, as everywhere else."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern.replace("**/", ""))


def _files(roots: Sequence[str]) -> Iterator[Path]:
    """The files of every root; links to folders are not followed."""
    count = 0
    for root in roots:
        for folder, folders, files in os.walk(os.path.realpath(root)):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(files):
                count += 1
                if count > MOST_FILES:
                    return
                yield Path(folder) / name


def _listed(path: Path) -> str:
    try:
        with os.scandir(path) as entries:
            names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be listed: {error.strerror}") from error
    return "\n".join(names) or "(the folder is empty)"


def text(arguments: dict[str, Any], name: str) -> str:
    """A text argument. Raises ToolFailed when it is missing."""
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ToolFailed(f"`{name}` is needed, as text")
    return value


def number(arguments: dict[str, Any], name: str, default: int) -> int:
    """A whole number; small models write it as text. Raises ToolFailed."""
    value = arguments.get(name, default)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError) as error:
        raise ToolFailed(f"`{name}` must be a whole number") from error
