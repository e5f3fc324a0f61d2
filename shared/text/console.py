"""The standard streams of a command: three open ones at the start, everything written at the end, nothing that acts on
the terminal in between: whatever is printed goes through one door, which writes it as `shown.escaped` has it. What is
said of a mistake (standard error) shows no password of an address that was typed in a wrong place either.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

from shared.system.descriptors import fill_descriptors
from shared.text.shown import escaped, one_line

#: Exit code where the output could not be written.
UNWRITTEN = 1
#: Back to the begin of the line, which is then empty.
_CLEAR = "\r\x1b[K"


def command(name: str, work: Callable[[], int]) -> int:
    """The exit code of `work`, or 1 where its output could not be written.

    A reader that has gone (`| head`) is no fault and ends the command without a word; a full disk is reported. Without
    this the interpreter flushes while it ends, and prints the trouble as an ignored exception.
    """
    open_streams()
    _forgiving()
    os.environ.setdefault("PYTHON_COLORS", "0")  # the interpreter's colours would be shown as escapes
    guard_streams()
    code = 0
    try:
        try:
            code = work()
        except SystemExit as exit_of_the_parser:
            code = exit_of_the_parser.code if isinstance(exit_of_the_parser.code, int) else 0
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return UNWRITTEN
    except OSError as error:
        _drop_output()
        if code != 0:
            return code  # the command met it first, and reported it
        sys.stderr.write(f"{name}: the output could not be written: {error.strerror or error}\n")
        return UNWRITTEN
    return code


def open_streams() -> None:
    """A stream that the caller closed (`>&-`) is the null device.

    Else the next file that is opened takes its number, and what is printed, also by a child, goes into that file.
    """
    fill_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  for the life of the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


class Door:
    """A text stream in which nothing acts; `direct` is the one behind it. With `hides` addresses lose their secrets."""

    def __init__(self, direct: TextIO, *, hides: bool = False) -> None:
        self.direct = direct
        self._hides = hides

    def write(self, text: str) -> int:
        """As of a text stream."""
        self.direct.write(escaped(_hidden(text) if self._hides else text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As of a text stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.direct, name)


def guard_streams() -> None:
    """From now on nothing that is printed acts on the terminal. Safe to call again."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr, hides=True)


def _guarded(stream: Any, *, hides: bool = False) -> TextIO:
    """A stream that was closed by the caller (None) stays so: what is printed to it goes nowhere."""
    return cast("TextIO", stream if stream is None or isinstance(stream, Door) else Door(stream, hides=hides))


def _hidden(text: str) -> str:
    """Every address with a password, and every one with parameters, has one of these signs."""
    if "@" not in text and "=" not in text:
        return text
    from shared.text.secret import shown_address  # only for a text that may need it

    return shown_address(text)


def direct(stream: TextIO) -> TextIO:
    """The stream behind the door, for a library that draws what was made harmless already."""
    return stream.direct if isinstance(stream, Door) else stream


def draw(text: str, stream: TextIO | None = None) -> None:
    """Write and flush past the door: our own control sequences, around what is made harmless already."""
    out = direct(sys.stdout if stream is None else stream)
    out.write(text)
    out.flush()


class LiveLine:
    """One line on standard error that changes in place; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = ""

    def show(self, line: str) -> None:
        """Put `line` in the place of the one before; "" gives the line back. It is cut to the width that there is."""
        if not self._terminal or line == self._shown:
            return
        from shutil import get_terminal_size  # half of the time that this module takes to import

        self._shown = line
        width = get_terminal_size().columns
        draw(f"{_CLEAR}{one_line(line, max(width - 1, 1))}", sys.stderr)


def _forgiving() -> None:
    """A character that the terminal's encoding has not, or a byte that is no text, becomes `?` or its like.

    Answers of models hold any character; a console of Windows or an old locale does not.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush succeeds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
