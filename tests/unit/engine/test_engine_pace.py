"""The number of decode threads follows the load of the machine, against machines made of two numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from modeld.engine.thread_tuning import CONTENDED, LEAST_TOKENS, MOST_PAUSE_S, PAUSE_S, WINDOW_S, Pace

pytestmark = pytest.mark.unit

#: what a machine gives for a number of threads: tokens a second, and the share of its time the engine's thread ran
Machine = Callable[[int], tuple[float, float]]


def quiet(threads: int) -> tuple[float, float]:
    return 60.0 * threads, 0.97


def busy(threads: int) -> tuple[float, float]:
    """As measured on two busy cores: more threads are slower."""
    return {1: 28.0, 2: 6.0, 4: 3.0}.get(threads, 2.0), 0.4


class Clock:
    """Wall and processor time of a decode on a machine."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def decode(self, pace: Pace, machine: Machine, tokens: int) -> list[int]:
        """Threads after each token."""
        seen = []
        pace.begin(self.wall, self.cpu)
        for _ in range(tokens):
            rate, share = machine(pace.threads)
            self.wall += 1 / rate
            self.cpu += share / rate
            pace.seen(1, self.wall, self.cpu)
            seen.append(pace.threads)
        return seen


@pytest.mark.parametrize("full", [1, 2, 8])
def test_a_quiet_machine_keeps_all_its_threads(full: int) -> None:
    pace = Pace(full)
    assert set(Clock().decode(pace, quiet, 5000)) == {full}


def test_on_a_busy_machine_the_faster_number_is_found_and_kept() -> None:
    pace, clock = Pace(2), Clock()
    assert clock.decode(pace, busy, 16)[-1] == 1
    seen = clock.decode(pace, busy, 5000)
    assert seen.count(2) / len(seen) < 0.03, "trials of more threads get rare"


def test_when_the_load_has_gone_all_threads_come_back() -> None:
    pace, clock = Pace(8), Clock()
    clock.decode(pace, busy, 400)
    assert pace.threads == 1
    tokens = int((MOST_PAUSE_S + 7 * WINDOW_S) * 60 * 8)
    assert clock.decode(pace, quiet, tokens)[-1] == 8


def test_a_step_that_was_not_faster_is_taken_back_and_waits() -> None:
    """A processor that is shared, where fewer threads would be slower still: an accelerator's own thread, say."""
    pace, clock = Pace(4), Clock()

    def shared(threads: int) -> tuple[float, float]:
        return 40.0 * threads, CONTENDED / 2

    seen = clock.decode(pace, shared, 160 * 60)
    assert min(seen) == 2
    falls = sum(1 for before, after in itertools.pairwise(seen) if after < before)
    assert falls <= 60 / MOST_PAUSE_S + 5


def test_judges_rest_on_enough_tokens_and_not_on_the_time_between_decodes() -> None:
    pace = Pace(2)
    pace.begin(0.0, 0.0)
    assert not any(pace.seen(1, number * WINDOW_S, 0.0) for number in range(1, LEAST_TOKENS))
    pace.begin(1000.0, 0.5)
    assert not pace.seen(1, 1000.0 + WINDOW_S / 2, 0.5)
    assert pace.threads == 2
    assert PAUSE_S > WINDOW_S


def test_short_work_is_judged_over_several_and_brings_all_threads_back() -> None:
    """Short questions never work for as long as a judgement takes."""
    pace, clock = Pace(2), Clock()
    clock.decode(pace, busy, 400)
    assert pace.threads == 1
    seen = []
    for _ in range(60):
        clock.wall += 10.0  # a person reads
        seen += clock.decode(pace, quiet, 9)
    assert seen[-1] == 2
    assert seen.index(2) < 10 * 9


def test_a_trial_goes_on_in_the_next_work() -> None:
    pace = Pace(2)
    pace.begin(0.0, 0.0)
    assert not pace.seen(8, 1.0, 0.3)
    assert pace.seen(8, 2.0, 0.6)
    assert pace.threads == 1
    pace.begin(100.0, 0.6)
    assert pace.threads == 1
    assert not pace.seen(8, 100.5, 0.9), "twice as fast: kept"
    assert pace.threads == 1


def test_one_bad_moment_changes_nothing() -> None:
    pace = Pace(2)
    pace.begin(0.0, 0.0)
    cpu = 0.0
    for number in range(1, 100):
        cpu += 0.1 if number % 2 else 0.95
        assert not pace.seen(100, float(number), cpu)
