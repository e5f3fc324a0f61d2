"""A defect of ours: which exception it was, and what is said of it. Never what it was about, which may be a prompt."""

from __future__ import annotations

from collections.abc import Callable


def sole(error: BaseException) -> BaseException:
    """The one exception inside nested groups (task groups raise groups of one)."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def reporter(program: str) -> Callable[[str, BaseException], None]:
    """What tells standard error of a defect in the work on a message or a method."""

    def report(what: str, error: BaseException) -> None:
        from shared.defect import report as report_one  # only for a defect

        report_one(program, what, error)

    return report
