"""What is drafted from a conversation, and when it is proposed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.engine.prompt_lookup import GRAM, LONGEST, MOST_TRUST, TRUST, Lookup

pytestmark = pytest.mark.unit
tokens = st.lists(st.integers(0, 3), max_size=80)


class Answer:
    """An answer that is known, evaluated as an engine does it."""

    def __init__(self, prompt: list[int], answer: list[int]) -> None:
        self.lookup = Lookup(prompt)
        self.evaluations = self.reported = self.refused = 0
        draft: list[int] = []
        for number, token in enumerate(answer):
            expected = bool(draft) and draft[0] == token
            assert self.lookup.accept(token) == expected, "reported tokens are confirmed one by one, and no others"
            if expected:
                del draft[0]
                continue
            self.refused += len(draft)
            left = len(answer) - number - 1
            draft = self.lookup.draft(left)
            assert len(draft) <= min(LONGEST, left)
            self.reported += len(draft)
            self.evaluations += 1


@given(tokens, tokens)
def test_whatever_is_said_the_books_agree(prompt: list[int], answer: list[int]) -> None:
    run = Answer(prompt, answer)
    assert run.evaluations + run.reported - run.refused >= len(answer)


@pytest.mark.parametrize("size", range(GRAM + 2))
def test_a_prompt_may_be_shorter_than_what_is_looked_up(size: int) -> None:
    answer = [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]
    run = Answer(list(range(size)), answer)
    assert 0 < run.reported < len(answer)
    assert run.evaluations + run.reported - run.refused >= len(answer)


def test_a_copy_is_evaluated_in_few_batches() -> None:
    text = random.Random(1).sample(range(1000), 400)
    run = Answer(text, text[100:])
    assert run.refused == 0
    assert run.evaluations < GRAM + TRUST + 5 + 300 // LONGEST


def test_an_edit_in_a_copy_costs_one_wrong_draft() -> None:
    text = random.Random(2).sample(range(1000), 400)
    edited = [*text[:200], 1001, *text[201:]]
    run = Answer(text, edited)
    assert run.refused <= LONGEST
    assert run.evaluations < 2 * (GRAM + 2 * TRUST + 5) + 400 // LONGEST


def test_nothing_is_proposed_for_text_that_never_repeats() -> None:
    run = Answer(list(range(200)), list(range(1000, 1400)))
    assert run.reported == 0
    assert run.evaluations == 400


def test_what_repeats_but_goes_on_differently_is_trusted_ever_less() -> None:
    chance = random.Random(3)
    line = list(range(GRAM + TRUST + 1))
    answer = [token for _ in range(100) for token in [*line, 100 + chance.randrange(500)]]
    run = Answer([*line, 99], answer)
    assert run.reported < 20 * LONGEST, "a row ends before trust that was doubled five times is earned"
    assert len(line) < MOST_TRUST


def test_the_latest_place_is_the_one_that_is_believed() -> None:
    line = list(range(GRAM))
    first, second = [*line, *range(10, 20)], [*line, *range(30, 40)]
    lookup = Lookup([*first, *second])
    for token in [*line, 30, 31, 32, 33]:
        lookup.accept(token)
    assert lookup.draft(LONGEST) == [34, 35]
