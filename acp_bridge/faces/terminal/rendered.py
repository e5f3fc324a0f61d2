"""The answer as rendered Markdown in the width of the terminal: whole blocks for good, the last one while it grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from acp_bridge.conversations.events import TurnEnded
from acp_bridge.faces.terminal.blocks import PARSER, split
from acp_bridge.faces.terminal.plain import PlainScreen
from acp_bridge.faces.terminal.screen import summary
from shared.text.console import direct
from shared.text.shown import one_line, readable

#: A growing block is drawn this often at most: a slow terminal must not slow the answer down. Seconds.
DRAW_EVERY_S = 0.1
#: Lines of the screen that a growing block leaves free.
LINES_FREE = 3


class Answer(Markdown):
    """As of rich, in the terminal's own colours; HTML is text, and an address is shown beside its words."""

    def __init__(self, text: str, style: str = "none") -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False, style=style)
        self.markup = text
        self.parsed = PARSER.parse(text)


class RenderedScreen(PlainScreen):
    """For a terminal. Implements `acp_bridge.faces.terminal.screen.Screen`."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.console = Console(file=direct(sys.stdout), highlight=False, markup=False, emoji=False)
        self._pending = ""
        self._thought = ""
        self._live: Live | None = None
        self._drawn_at = 0.0
        self._blocks = 0

    def begin(self, *, model: str, conversation: str, is_command: bool) -> None:
        """See Screen."""
        super().begin(model=model, conversation=conversation, is_command=is_command)
        self._blocks = 0

    def text(self, text: str) -> None:
        """See Screen."""
        self._end_thought()
        self._show_line("")
        self._pending += readable(text)
        self.tick()

    def thought(self, text: str) -> None:
        """See Screen. Shown while it lasts, dim, and kept: it is what the answer stands on."""
        self._show_line("")
        self._thought += readable(text)
        self.tick()

    def remark(self, text: str) -> None:
        """See Screen."""
        self._settle()
        self._show_line("")
        self.show(Answer(readable(text), style="none" if self._is_command else "dim"))

    def tick(self) -> None:
        """See Screen."""
        if self._error is not None:
            return
        if not self._pending and not self._thought:
            super().tick()
            return
        now = time.monotonic()
        if now - self._drawn_at < DRAW_EVERY_S:
            return
        self._drawn_at = now
        if self._thought:
            self._grow(Answer(self._thought, style="dim italic"))
            return
        *whole, self._pending = split(self._pending)
        for block in whole:
            self._stop_live()
            self._block(block)
        self._grow(Answer(self._pending))

    def end(self, ended: TurnEnded) -> None:
        """See Screen."""
        self._settle()
        self._show_line("")
        if self._error is not None:
            raise self._error
        if ended.stop == "cancelled":
            self.show(Text("Stopped.", style="dim"))
        if ended.numbers and not self.quiet:
            self.show(Text(one_line(summary(ended.numbers)), style="dim"))

    def fail(self) -> None:
        """See Screen."""
        self._settle()
        self._show_line("")

    # --- parts ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What has come so far is shown for good."""
        self._end_thought()
        self._stop_live()
        pending, self._pending = self._pending, ""
        for block in split(pending):
            self._block(block)

    def _block(self, text: str) -> None:
        """One block of the answer for good, a line apart from the one before."""
        if text.strip():
            self.show(Block(Answer(text), apart=self._blocks > 0))
            self._blocks += 1

    def _end_thought(self) -> None:
        if self._thought:
            thought, self._thought = self._thought, ""
            self._stop_live()
            self.show(Block(Answer(thought, style="dim italic")))
            self._blocks += 1

    def _grow(self, answer: Answer) -> None:
        try:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Block(answer, apart=self._blocks > 0, tail=True), refresh=True)
        except OSError as error:
            self._lose(error)

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            try:
                live.update("", refresh=True)
                live.stop()
            except OSError as error:
                self._lose(error)

    def show(self, what: Answer | Block | Text) -> None:
        """Something that stays, between two turns or in one."""
        if self._error is not None:
            return
        try:
            self.console.print(what)
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self._error = error
        self.lost.set()


class Block:
    """An answer without empty lines around it, an empty line before it where it stands `apart` from another.

    `tail`: of one that may be longer than the screen the last lines, which alone can be drawn over.
    """

    def __init__(self, answer: Answer, *, apart: bool = False, tail: bool = False) -> None:
        self._answer = answer
        self._apart = apart
        self._tail = tail

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich asks for it."""
        return self._segments(console, options)

    def _segments(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        lines = console.render_lines(self._answer, options.update(height=None), pad=False)
        while lines and _is_empty(lines[0]):
            lines.pop(0)
        while lines and _is_empty(lines[-1]):
            lines.pop()
        if self._apart:
            lines.insert(0, [])
        for line in lines[-max(console.height - LINES_FREE, 1) :] if self._tail else lines:
            yield from line
            yield Segment.line()


def _is_empty(line: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in line)
