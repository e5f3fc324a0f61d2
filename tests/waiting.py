"""Waiting for what another process does: asked again and again, up to a deadline that only what hangs reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio

#: Longer than a machine takes that does other things too. Seconds.
LONG = 30.0
#: Short beside anything that is waited for. Seconds.
PAUSE = 0.005


def until(what: Callable[[], Any], label: str, seconds: float = LONG) -> Any:
    """The first true answer of `what`; fails with `label` past the deadline."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {label}"
        time.sleep(PAUSE)
    return answer


async def eventually(what: Callable[[], Any], label: str, seconds: float = LONG) -> Any:
    """The same on the loop."""
    with anyio.move_on_after(seconds):
        while not (answer := what()):
            await anyio.sleep(PAUSE)
        return answer
    raise AssertionError(f"not within {seconds:.0f} s: {label}")
