"""A defect of ours: which exception it was, and what is said of it. Never what it was about, which may be a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable

from shared.shown import one_line


def sole(error: BaseException) -> BaseException:
    """The one exception inside nested groups (task groups raise groups of one)."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def reporter(program: str) -> Callable[[str, BaseException], None]:
    """What tells standard error of a defect in the work on a message or a method."""

    def report(what: str, error: BaseException) -> None:
        import traceback  # only for a defect

        place = traceback.extract_tb(error.__traceback__)[-1:]
        where = f"{place[0].filename}:{place[0].lineno}" if place else "unknown place"
        sys.stderr.write(f"{program}: {type(error).__name__} in {one_line(what)} at {where}\n")

    return report
