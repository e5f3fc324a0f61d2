"""A defect of ours as it may be reported: its type and place, never its text, which may hold a prompt or a key."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable

from shared.text.shown import one_line


def where(error: BaseException) -> str:
    """File and line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "unknown place"


def report(program: str, work: str, error: BaseException) -> None:
    """Report a defect in one line on standard error."""
    sys.stderr.write(f"{program}: {type(error).__name__} in {one_line(work)} at {where(error)}\n")


def reporter(program: str) -> Callable[[str, BaseException], None]:
    """`report` of one program."""
    return functools.partial(report, program)


def sole(error: BaseException) -> BaseException:
    """The one exception inside nested groups (task groups raise groups of one)."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def frames(error: BaseException) -> str:
    """The calls that led there, for who looks for the defect; our own code, without values."""
    import traceback

    return "".join(traceback.format_tb(error.__traceback__))


class DefectHandler(logging.Handler):
    """What libraries log about an error: the name of the log, and the error's type and place.

    Without a handler Python prints the record with the error's text, in which a library quotes what it was given.
    """

    def __init__(self, program: str) -> None:
        super().__init__(logging.ERROR)
        self._program = program

    def emit(self, record: logging.LogRecord) -> None:
        """Never the record's own words."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            report(self._program, record.name, error)
        else:
            sys.stderr.write(f"{self._program}: an error of {record.name} at {record.pathname}:{record.lineno}\n")

    def stand(self) -> None:
        """Hear every log of this process."""
        logging.getLogger().addHandler(self)
