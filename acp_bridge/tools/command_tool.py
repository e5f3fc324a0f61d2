"""run_command: in the editor's terminal when it has one, else as a child of the bridge that dies with its turn."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from acp_bridge.conversations.events import Item, LiveTerminal, TextItem
from acp_bridge.conversations.face import Command, Finished, ToolFailed
from acp_bridge.process.child_process import ChildProcess, on_path
from acp_bridge.tools.base import Outcome, Plan, ShowItems, parameters
from acp_bridge.tools.consent.grants import HARDENED, command_grant, looking_verb
from acp_bridge.tools.read_tools import text
from acp_bridge.tools.workspace import Workspace
from shared.text.shown import code_span

if TYPE_CHECKING:
    from anyio.abc import Process

RUN_LIMIT_S = 120.0
OUTPUT_BYTES = 256 * 1024
SHOWN_EVERY_S = 0.5
#: What the helpers of a command (a `tee` behind it) have to end in after it, and what is then left in the pipe.
LAST_WORDS_S = 1.0
LEFT_RUNNING = "\n[what the command left running in the background was ended with it]"
#: A longer line is cut in titles: the question holds it whole.
TITLE_LENGTH = 120
#: A line with any of these is the shell's.
SHELL_SIGNS = frozenset(";&|<>`$\n\r(){}*?~!#\\")


class RunCommand:
    """One command line in the workspace."""

    name = "run_command"
    description = (
        "Run a command line in the workspace folder and get its output. It cannot ask anything, and what it leaves "
        "running in the background is ended with it."
    )
    parameters = parameters(["command"], command=("string", "the command line"))
    changes = True

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        line = text(arguments, "command").strip()
        program, given = split(line)
        found = await anyio.to_thread.run_sync(looks_by, line, workspace.roots, abandon_on_cancel=True)
        command = Command(
            program=found or program,
            arguments=given,
            cwd=str(workspace.resolve(".")),
            output_limit=OUTPUT_BYTES,
            environment=HARDENED[program] if found else {},
            withheld=workspace.secrets,
        )

        async def effect(show: ShowItems) -> Outcome:
            if workspace.face.runs_terminals:
                return await _in_editor(command, workspace, show)
            finished = await run_here(command, lambda output: show([TextItem(text=workspace.cut(output))]))
            return _outcome(finished, workspace)

        return Plan(
            title=code_span(line, TITLE_LENGTH),
            kind="execute",
            details=[TextItem(text=line)],
            effect=effect,
            grant=command_grant(line, looks=bool(found)),
        )


def split(line: str) -> tuple[str, list[str]]:
    """The program and its arguments; a line with shell signs goes to the shell as it is. Raises ToolFailed."""
    if "\0" in line:
        raise ToolFailed("a command line cannot hold a zero byte")
    if not SHELL_SIGNS.intersection(line):
        try:
            words = shlex.split(line, posix=sys.platform != "win32")
        except ValueError as error:
            raise ToolFailed(f"not a command line: {error}") from error
        if words:
            return words[0], words[1:]
    return ("cmd", ["/c", line]) if sys.platform == "win32" else ("/bin/sh", ["-c", line])


def looks_by(line: str, roots: Sequence[str]) -> str:
    """The program file of a line of the table of commands that only look, "" for any other line.

    A program that lies in the workspace is whatever was written there, whatever its name.
    """
    verb = looking_verb(line)
    found = None if verb is None else on_path(verb[0], None)
    if found is None or not os.path.isabs(found):
        return ""
    if sys.platform == "win32" and not found.lower().endswith(".exe"):
        return ""
    real = Path(os.path.realpath(found))
    inside = any(place.is_relative_to(os.path.realpath(root)) for root in roots for place in (Path(found), real))
    return "" if inside else found


def environment(command: Command) -> dict[str, str]:
    """What a command is given of the bridge's environment. On Windows names differ by more than their case, and `cmd`
    looks for programs in the current folder first unless it is asked not to.
    """
    windows = sys.platform == "win32"
    withheld = {name.upper() if windows else name for name in command.withheld}
    kept = {name: value for name, value in os.environ.items() if name not in withheld}
    more = {"NoDefaultCurrentDirectoryInExePath": "1"} if windows else {}
    return {**kept, **more, **command.environment}


async def _in_editor(command: Command, workspace: Workspace, show: ShowItems) -> Outcome:
    terminal = await workspace.face.open_terminal(workspace.conversation, command)
    live: list[Item] = [LiveTerminal(terminal=terminal.id)]
    try:
        show(live)  # before it is released: the editor goes on showing what it was shown
        with anyio.move_on_after(RUN_LIMIT_S) as scope:
            finished = await terminal.finish()
        if scope.cancelled_caught:
            await terminal.kill()
            raise ToolFailed(f"it did not end within {RUN_LIMIT_S:.0f} s and was ended")
        outcome = _outcome(finished, workspace)
        return Outcome(text=outcome.text, items=live, saved=outcome.items)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await terminal.release()


def _outcome(finished: Finished, workspace: Workspace) -> Outcome:
    ended = "was ended by a signal" if finished.code is None else f"ended with {finished.code}"
    output = workspace.cut(finished.output)
    return Outcome(text=f"The command {ended}.\n{output}", items=[TextItem(text=output)])


async def run_here(command: Command, on_output: Callable[[str], None]) -> Finished:
    """Run without a terminal; it is over when the command itself has ended. What that left running, holding the output
    or not, is ended with it, as everything is at the end of the turn, the limit or the bridge.

    `on_output` gets everything so far, twice a second at most.
    """
    child = ChildProcess()
    try:
        process = await child.spawn(
            command.program,
            command.arguments,
            cwd=command.cwd,
            environ=environment(command),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise ToolFailed(f"{command.program} cannot be run: {error.strerror}") from error
    output = Output(command.output_limit, on_output)
    code: int | None = None
    left = False
    try:
        with anyio.move_on_after(RUN_LIMIT_S) as scope:
            code, left = await _followed(process, child, output)
        if scope.cancelled_caught:
            raise ToolFailed(f"it did not end within {RUN_LIMIT_S:.0f} s and was ended")
    finally:
        child.end()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return Finished(output=output.text() + (LEFT_RUNNING if left else ""), code=code)


async def _followed(process: Process, child: ChildProcess, output: Output) -> tuple[int | None, bool]:
    """Gather the output until the command has ended; its exit code, and whether something that it started still held
    the output and was ended.
    """
    complete = anyio.Event()

    async def gather() -> None:
        assert process.stdout is not None
        async for data in process.stdout:
            output.add(data)
        complete.set()

    async with anyio.create_task_group() as group:
        group.start_soon(gather)
        code = await child.wait()
        with anyio.move_on_after(LAST_WORDS_S):
            await complete.wait()
        left = not complete.is_set()
        child.end()
        with anyio.move_on_after(LAST_WORDS_S):  # what is in the pipe yet; what could not be ended may hold it open
            await complete.wait()
        group.cancel_scope.cancel()
    return code, left


class Output:
    """The end of what a command printed, `limit` bytes of it; `on_output` is called twice a second at most."""

    def __init__(self, limit: int, on_output: Callable[[str], None]) -> None:
        self._limit = limit
        self._on_output = on_output
        self._data = bytearray()
        self._shown_at = anyio.current_time()

    def add(self, data: bytes) -> None:
        """More was printed."""
        self._data += data
        del self._data[: max(0, len(self._data) - self._limit)]
        if anyio.current_time() - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = anyio.current_time()
            self._on_output(self.text())

    def text(self) -> str:
        """What there is so far."""
        return self._data.decode("utf-8", "replace")
