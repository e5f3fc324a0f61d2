"""A process that hangs at its end is ended all the same, and one that ended in order is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

HANGS = "import threading; from modeld.limit import Limit; limit = Limit(); limit.set({first}); limit.set({second}); "
HANGS += "limit.cancel() if {cancel} else None; threading.Event().wait({wait})"
LEAVES = "import threading; from modeld.limit import leave; {thread} leave(7)"
#: A thread that nobody can end, as in a look at a disk that does not answer.
STUCK = "threading.Thread(target=threading.Event().wait).start();"


@pytest.mark.parametrize(
    ("first", "second", "cancel", "wait", "code"),
    [
        (0.05, 60, False, None, 1),  # a later moment changes nothing
        (60, 0.05, False, None, 1),  # an earlier one counts
        (0.1, 0.1, True, 0.3, 0),
    ],
)
def test_the_limit_ends_what_hangs(first: float, second: float, cancel: bool, wait: float | None, code: int) -> None:
    program = HANGS.format(first=first, second=second, cancel=cancel, wait=wait)
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=20).returncode == code


@pytest.mark.parametrize(("thread", "code"), [(STUCK, 7), ("", 0)])
def test_a_stuck_thread_is_not_waited_for(thread: str, code: int) -> None:
    program = LEAVES.format(thread=thread)
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=20).returncode == code
