"""A worker that gets nowhere is distinguished from a slow one, from one that does not answer, from a machine asleep."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.turn.stillness import MOST_INTERVALS, STEPS, Standing, Stillness
from shared.settings import Settings

pytestmark = pytest.mark.unit
SETTINGS = Settings(text_silence=10.0, engine_silence=600.0, reaper_interval=1.0)
TEXT = Standing(mark=1.0, in_engine=False, place="modeld.output.calls.gemmacall:92")
ENGINE = Standing(mark=1.0, in_engine=True, place="modeld.engine.llama.engine:240")


def ended_after(standing: Standing | None, *, step: float = 1.0, first: Standing | None = None) -> float | None:
    """Seconds of the same account until it counts as stuck; None within two hours."""
    stillness, now = Stillness(SETTINGS), 0.0
    if first is not None:
        stillness.judge(first, now)
        now += step
    while now < 7200:
        if stillness.judge(standing, now) is not None:
            return now
        now += step
    return None


def test_text_has_seconds_and_the_engine_has_minutes() -> None:
    assert ended_after(TEXT) == 10.0
    assert ended_after(ENGINE) == 600.0


def test_the_engine_has_longer_where_its_steps_take_long() -> None:
    assert ended_after(Standing(mark=1.0, in_engine=True, longest_s=90.0)) == STEPS * 90.0
    assert ended_after(Standing(mark=1.0, in_engine=True, longest_s=1.0)) == 600.0


def test_a_worker_that_never_answers_is_no_evidence_about_text() -> None:
    assert ended_after(None, first=TEXT) == 600.0
    assert ended_after(None) == 600.0
    short = Stillness(msgspec.structs.replace(SETTINGS, engine_silence=5.0))
    reasons = [short.judge(None, float(now)) for now in range(6)]
    assert reasons == [None] * 5 + ["it showed no progress for 5 s"]


def test_the_reason_names_the_place_of_a_defect_and_no_number_it_does_not_know() -> None:
    stillness = Stillness(SETTINGS)
    reasons = [stillness.judge(TEXT, float(now)) for now in range(11)]
    assert reasons[:10] == [None] * 10
    assert reasons[10] == ("its text was not handled within 10 s, at modeld.output.calls.gemmacall:92")


def test_a_place_that_is_not_known_is_not_named() -> None:
    stillness = Stillness(SETTINGS)
    nowhere = msgspec.structs.replace(TEXT, place="")
    reasons = [stillness.judge(nowhere, float(now)) for now in range(11)]
    assert reasons[10] == "its text was not handled within 10 s"


@pytest.mark.parametrize("interval", [0.5, 2.0])
def test_a_pause_counts_for_as_many_intervals_as_are_allowed(interval: float) -> None:
    settings = Settings(text_silence=MOST_INTERVALS * interval, engine_silence=600.0, reaper_interval=interval)
    stillness = Stillness(settings)
    stillness.judge(TEXT, 0.0)
    assert stillness.judge(TEXT, MOST_INTERVALS * interval - 0.1) is None
    assert stillness.judge(TEXT, 1000.0) is not None
    stillness = Stillness(msgspec.structs.replace(settings, text_silence=MOST_INTERVALS * interval + 0.1))
    stillness.judge(TEXT, 0.0)
    assert stillness.judge(TEXT, 1000.0) is None


def test_a_machine_that_slept_charges_nothing() -> None:
    """Hours between two accounts count for a moment."""
    stillness = Stillness(SETTINGS)
    assert stillness.judge(TEXT, 0.0) is None
    assert stillness.judge(TEXT, 36_000.0) is None
    assert stillness.judge(TEXT, 36_000.0 + 10.0 - MOST_INTERVALS - 0.1) is None
    assert MOST_INTERVALS * SETTINGS.reaper_interval < SETTINGS.text_silence


@given(st.lists(st.sampled_from(["move", "text", "engine", "none"]), max_size=60), st.floats(0.1, 5.0))
def test_whoever_moves_within_the_limit_is_never_stuck(kinds: list[str], step: float) -> None:
    stillness, now, mark, moved_at = Stillness(SETTINGS), 0.0, 0.0, 0.0
    for kind in kinds:
        now += step
        if kind == "move" or now - moved_at >= SETTINGS.text_silence - step:
            mark, moved_at = mark + 1.0, now
            assert stillness.judge(Standing(mark=mark, in_engine=False), now) is None
        elif kind == "none":
            assert stillness.judge(None, now) is None
        else:
            assert stillness.judge(Standing(mark=mark, in_engine=kind == "engine"), now) is None


def test_what_was_heard_of_by_itself_begins_again() -> None:
    stillness = Stillness(SETTINGS)
    for now in range(9):
        assert stillness.judge(TEXT, float(now)) is None
    stillness.forget()
    for now in range(9, 19):
        assert stillness.judge(TEXT, float(now)) is None
    stillness.forget()
    assert [stillness.judge(None, 20.0 + now) is None for now in range(601)] == [True] * 600 + [False]
