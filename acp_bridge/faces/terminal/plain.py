"""The answer as it comes, on standard output; progress, remarks and counts on standard error."""

from __future__ import annotations

import sys
import time

import anyio

from acp_bridge.conversations.events import Staged, TurnEnded
from acp_bridge.faces.terminal.progress import Paces, Progress
from acp_bridge.faces.terminal.screen import summary
from shared.text.console import LiveLine, draw
from shared.text.shown import one_line, readable


class PlainScreen:
    """For a pipe, a file, and `--plain`. Implements `acp_bridge.faces.terminal.screen.Screen`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.lost = anyio.Event()
        self.paces = Paces()
        self.quiet = quiet
        self._line = LiveLine()
        self._progress = Progress()
        self._error: OSError | None = None
        self._ends_with = "\n"
        self._is_command = False

    def begin(self, *, model: str, conversation: str, is_command: bool) -> None:
        """See Screen."""
        self._progress = Progress(self.paces)
        self._is_command = is_command

    def text(self, text: str) -> None:
        """See Screen."""
        self._show_line("")
        self._write(readable(text))

    def thought(self, text: str) -> None:
        """See Screen. Told by its stage alone."""

    def remark(self, text: str) -> None:
        """See Screen. The answer to a command is the output; else it is said beside it."""
        self._show_line("")
        if self._is_command:
            self._write(f"{readable(text)}\n")
        else:
            self._end_line()
            sys.stderr.write(f"acp-bridge: {one_line(text)}\n")

    def stage(self, event: Staged) -> None:
        """See Screen."""
        self._progress.see(event, time.monotonic())

    def work(self, title: str) -> None:
        """See Screen."""
        self._progress.wait(title, time.monotonic())
        if not title:
            self._show_line("")

    def tick(self) -> None:
        """See Screen."""
        self._show_line(self._progress.line(time.monotonic()))

    def end(self, ended: TurnEnded) -> None:
        """See Screen."""
        self._show_line("")
        if self._error is not None:
            raise self._error
        self._end_line()
        if ended.numbers and not self.quiet:
            sys.stderr.write(f"{one_line(summary(ended.numbers))}\n")

    def fail(self) -> None:
        """See Screen."""
        self._show_line("")
        self._end_line()

    def _end_line(self) -> None:
        if not self._ends_with.endswith("\n"):
            self._write("\n")

    def _show_line(self, line: str) -> None:
        if not self.quiet:
            self._line.show(line)

    def _write(self, text: str) -> None:
        if self._error is not None or not text:
            return
        self._ends_with = text
        try:
            draw(text)
        except OSError as error:  # nobody reads it any more (`| head`, a full disk)
            self._error = error
            self.lost.set()
