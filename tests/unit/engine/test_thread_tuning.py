"""The number of threads follows what other programs take, on machines that are made of numbers."""

from __future__ import annotations

import pytest

from modeld.engine.processors.thread_tuning import FIRST_WINDOW_S, SPARE, STALE_S, WINDOW_S, Reading, ThreadCount

pytestmark = pytest.mark.unit


class Machine:
    """`busy` programs beside an engine, `low` of them at low priority; each would take a whole processor."""

    def __init__(self, processors: int, busy: int = 0, low: int = 0) -> None:
        self.processors, self.busy, self.low = processors, busy, low
        self.blind = False
        self._wall = self._others = self._low = 0.0

    def read(self) -> Reading:
        waiting = None if self.blind else self.busy + self.low
        return Reading(wall=self._wall, others=self._others, low=self._low, waiting=waiting)

    def sleep(self, seconds: float) -> None:
        self._wall += seconds

    def compute(self, count: ThreadCount, seconds: float = 1.0) -> list[int]:
        """Threads after each step of 10 ms. Whoever has low priority gets what is left, all others get their share."""
        seen = []
        for _ in range(round(seconds / 0.01)):
            self._wall += 0.01
            wanting = count.threads + self.busy
            busy = self.busy * min(1.0, self.processors / wanting)
            left = self.processors - min(self.processors, wanting)
            # where each processor has one of them, the engine's threads come first there
            low = min(self.low, left) if self.low >= self.processors else min(self.low, self.processors)
            self._others += 0.01 * (busy + low)
            self._low += 0.01 * low
            if count.due(self._wall):
                count.judge(self.read())
            seen.append(count.threads)
        return seen


@pytest.mark.parametrize(("full", "processors"), [(1, 1), (2, 2), (4, 8), (8, 8)])
def test_a_quiet_machine_keeps_all_its_threads(full: int, processors: int) -> None:
    count, machine = ThreadCount(full, processors), Machine(processors)
    count.begin(machine.read())
    assert set(machine.compute(count)) == {full}


@pytest.mark.parametrize(
    ("processors", "busy", "threads"), [(2, 1, 1), (2, 2, 1), (2, 3, 1), (4, 1, 3), (8, 3, 5), (8, 8, 1), (8, 40, 1)]
)
def test_others_are_left_their_processors_from_the_first_step(processors: int, busy: int, threads: int) -> None:
    count, machine = ThreadCount(processors, processors), Machine(processors, busy)
    count.begin(machine.read())
    assert count.threads == threads
    assert machine.compute(count)[-1] == threads


def test_a_processor_beyond_those_that_compute_is_the_others_first() -> None:
    """Four cores of two logical processors each."""
    count, machine = ThreadCount(4, 8), Machine(8, busy=4)
    count.begin(machine.read())
    assert set(machine.compute(count)) == {4}


@pytest.mark.parametrize(("low", "threads"), [(1, 1), (2, 2), (3, 2)])
def test_low_priority_gives_way_where_each_processor_has_one(low: int, threads: int) -> None:
    count, machine = ThreadCount(2, 2), Machine(2, low=low)
    count.begin(machine.read())
    assert machine.compute(count, FIRST_WINDOW_S + 0.02)[-1] == threads
    machine.sleep(STALE_S / 2)
    count.begin(machine.read())
    assert count.threads == threads, "what was found holds while as many want a processor"


def test_load_that_comes_and_goes_within_a_turn_is_followed() -> None:
    count, machine = ThreadCount(2, 2), Machine(2)
    count.begin(machine.read())
    assert machine.compute(count)[-1] == 2
    machine.busy = 1
    assert machine.compute(count, 2 * WINDOW_S + 0.02)[-1] == 1
    machine.busy = 0
    assert machine.compute(count, 2 * WINDOW_S + 0.02)[-1] == 2


def test_what_was_found_is_forgotten_with_another_load_and_with_time() -> None:
    count, machine = ThreadCount(2, 2), Machine(2, low=2)
    count.begin(machine.read())
    assert machine.compute(count)[-1] == 2
    machine.low, machine.busy = 0, 1
    count.begin(machine.read())
    assert count.threads == 1
    machine.compute(count)
    machine.busy = 0
    machine.sleep(STALE_S + 1)
    count.begin(machine.read())
    assert count.threads == 2


def test_a_little_of_a_processor_is_nobodys_loss() -> None:
    count = ThreadCount(2, 2)
    count.begin(Reading(wall=0.0, others=0.0, low=0.0, waiting=0))
    assert not count.judge(Reading(wall=1.0, others=SPARE - 0.01, low=0.0, waiting=1))
    assert count.judge(Reading(wall=2.0, others=2 * SPARE, low=0.0, waiting=0))


def test_where_nobody_tells_who_waits_the_first_moment_of_work_does() -> None:
    count, machine = ThreadCount(2, 2), Machine(2, busy=1)
    machine.blind = True
    count.begin(machine.read())
    assert count.threads == 2
    assert machine.compute(count, FIRST_WINDOW_S + 0.02)[-1] == 1
    count.begin(machine.read())
    assert count.threads == 1
