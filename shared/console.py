"""The standard streams of a command: three open ones at the start, everything written at the end."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

from shared.endpoint.stdio import fill_descriptors

#: Exit code where the output could not be written.
UNWRITTEN = 1


def command(name: str, work: Callable[[], int]) -> int:
    """The exit code of `work`, or 1 where its output could not be written.

    A reader that has gone (`| head`) is no fault and ends the command without a word; a full disk is told. Without
    this the interpreter flushes while it ends, and prints the trouble as an ignored exception.
    """
    open_streams()
    _forgiving()
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
            return code  # the command met it first, and told it
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
