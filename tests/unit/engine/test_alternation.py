"""The long run's own instrument: a sample that comes late is asked for again, one that never comes is a fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from alternation import SAMPLES, Alternation
from modeld.pipe.messages import Account, Done
from shared.protocol.api import Event, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.unit]


class Host:
    """A worker that leaves the first `missed` samples unanswered."""

    exit_reason = ""

    def __init__(self, missed: int) -> None:
        self.missed = missed
        self.asked = 0

    def next_turn(self) -> int:
        return 1

    async def run(self, job: Any, on_events: Callable[[list[Event]], None]) -> Done:
        return Done(turn=1, finish_reason="stop", usage=Usage(reused=2, prefilled=3))

    async def sample(self) -> Account | None:
        self.asked += 1
        return None if self.asked <= self.missed else Account(running=None, stage="idle", rss_bytes=7)


async def test_a_sample_that_comes_late_is_asked_for_again() -> None:
    host: Any = Host(missed=2)
    assert (await Alternation(host).turn())[:4] == (7, 0, 2, 3)
    assert host.asked == 3


async def test_a_worker_that_never_answers_is_a_fault() -> None:
    host: Any = Host(missed=SAMPLES)
    with pytest.raises(AssertionError, match="without an answer"):
        await Alternation(host).turn()
    assert host.asked == SAMPLES
