"""run_command: in the editor's terminal when it has one, else as a child of the bridge that dies with its turn."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.leash import Leash
from acp_bridge.session.events import Item, LiveTerminal, TextItem
from acp_bridge.session.face import Command, Finished, ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems, parameters
from acp_bridge.tools.looking import text
from acp_bridge.tools.workspace import Workspace

if TYPE_CHECKING:
    from anyio.abc import Process

RUN_LIMIT_S = 120.0
OUTPUT_BYTES = 256 * 1024
SHOWN_EVERY_S = 0.5
#: What the helpers of a command (a `tee` behind it) have to end in after it, and what is then left in the pipe.
LAST_WORDS_S = 1.0
LEFT_RUNNING = "\n[what the command left running in the background was ended with it]"
#: With any of these a line can do more than its first words say, so it is never allowed by them.
SHELL_SIGNS = frozenset(";&|<>`$\n\r(){}*?~!#\\")

#: Programs whose first argument says nothing about what will happen.
LAUNCHERS = frozenset(
    {"sudo", "doas", "env", "sh", "bash", "zsh", "xargs", "time", "nohup", "python", "python3", "node", "npx", "uvx"}
    | {"nice", "timeout", "watch", "ssh", "command", "exec", "setsid", "perl", "ruby"}
)
#: Verbs that run whatever comes after them (`uv run`, `docker exec`), whichever program has them.
RUNNING_VERBS = frozenset({"run", "exec", "dlx", "x"})


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
        cwd = str(workspace.resolve("."))
        command = Command(program=program, arguments=given, cwd=cwd, output_limit=OUTPUT_BYTES)

        async def effect(show: ShowItems) -> Outcome:
            if workspace.face.runs_terminals:
                return await _in_editor(command, workspace, show)
            finished = await run_here(command, lambda output: show([TextItem(text=workspace.cut(output))]))
            return _told(finished, workspace)

        return Plan(title=f"`{line}`", kind="execute", effect=effect, grant=grant_of(line))


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


def grant_of(line: str) -> str:
    """What "always" allows: the program and its verb (`git status`), else this very line; "" for neither.

    A program that runs another one is allowed by its whole line only.
    """
    words = line.split()
    if not words or SHELL_SIGNS.intersection(line):
        return ""
    launches = words[0].rpartition("/")[2] in LAUNCHERS or RUNNING_VERBS.intersection(words[1:2])
    plain = len(words) > 1 and words[1].isidentifier() and not launches
    return "run " + " ".join(words[:2] if plain else words)


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
        told = _told(finished, workspace)
        return Outcome(text=told.text, items=live, saved=told.items)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await terminal.release()


def _told(finished: Finished, workspace: Workspace) -> Outcome:
    ended = "was ended by a signal" if finished.code is None else f"ended with {finished.code}"
    output = workspace.cut(finished.output)
    return Outcome(text=f"The command {ended}.\n{output}", items=[TextItem(text=output)])


async def run_here(command: Command, on_output: Callable[[str], None]) -> Finished:
    """Run without a terminal; it is over when the command itself has ended. What that left running, holding the output
    or not, is ended with it, as everything is at the end of the turn, the limit or the bridge.

    `on_output` gets everything so far, twice a second at most.
    """
    leash = Leash()
    try:
        process = await leash.spawn(
            command.program, command.arguments, cwd=command.cwd, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise ToolFailed(f"{command.program} cannot be run: {error.strerror}") from error
    output = Output(command.output_limit, on_output)
    code: int | None = None
    left = False
    try:
        with anyio.move_on_after(RUN_LIMIT_S) as scope:
            code, left = await _followed(process, leash, output)
        if scope.cancelled_caught:
            raise ToolFailed(f"it did not end within {RUN_LIMIT_S:.0f} s and was ended")
    finally:
        leash.end()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return Finished(output=output.text() + (LEFT_RUNNING if left else ""), code=code)


async def _followed(process: Process, leash: Leash, output: Output) -> tuple[int | None, bool]:
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
        code = await leash.wait()
        with anyio.move_on_after(LAST_WORDS_S):
            await complete.wait()
        left = not complete.is_set()
        leash.end()
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
