"""Signs of life of instances that nobody here can prove dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.lease.pulse import PULSE_SECONDS, SILENT_SECONDS, Pulses
from shared.lease.reader import PresenceView, Survey
from shared.paths import DataRoot

pytestmark = pytest.mark.unit


def view(name: str, *, provable: bool = False, dead: bool = False) -> PresenceView:
    return PresenceView(
        instance=name,
        endpoint="",
        token_file="",
        pid=1,
        start_token="",
        host="h",
        backend="llama",
        protocol_min=1,
        protocol_max=1,
        version="",
        started=0.0,
        dead=dead,
        same_boot=True,
        provable=provable,
    )


class Watch:
    def __init__(self, *views: PresenceView) -> None:
        self.stamps: dict[str, int | None] = {one.instance: 1 for one in views}
        self.survey = Survey(instances=list(views))
        self.pulses = Pulses(DataRoot(Path("/none")), lambda name: self.stamps[name])
        self.now = 0.0

    def living(self, seconds: float = 0.0, step: float = 0.5) -> list[str]:
        end = self.now + seconds
        while True:
            found = self.pulses.judge(self.survey, self.now)
            if self.now >= end:
                return [one.instance for one in found.living]
            self.now += step


def test_silence_for_long_enough_is_death_and_a_new_sign_is_life() -> None:
    watch = Watch(view("far"))
    assert watch.living(SILENT_SECONDS - 1) == ["far"]
    assert watch.living(2) == []
    watch.stamps["far"] = 2
    assert watch.living() == ["far"]


def test_one_that_shows_itself_lives_for_ever() -> None:
    watch = Watch(view("far"))
    for sign in range(2, 100):
        watch.stamps["far"] = sign
        assert watch.living(PULSE_SECONDS) == ["far"]


def test_who_was_stopped_himself_has_not_watched() -> None:
    """A closed lid, of everybody: nothing moved meanwhile, and nobody is taken for dead for it."""
    watch = Watch(view("far"))
    watch.living(5)
    watch.now += 10_000
    assert watch.living() == ["far"]


def test_without_a_pulse_nothing_is_concluded() -> None:
    watch = Watch(view("old"))
    watch.stamps["old"] = None
    assert watch.living(10 * SILENT_SECONDS, 5.0) == ["old"]


def test_whose_death_can_be_proven_is_judged_by_that_alone() -> None:
    watch = Watch(view("near", provable=True), view("gone", provable=True, dead=True))
    assert watch.living(10 * SILENT_SECONDS, 5.0) == ["near"]
