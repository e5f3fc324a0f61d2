"""A text that is cut within its marks: its own tokens, at a cost that grows with its length alone."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from modeld.engine.continued import Separator, cut, find_separator, in_parts, one_by_one
from modeld.template.escape import SpecialTexts

MARKS = {"<end>": 1, "<x>": 2}
SPECIAL = SpecialTexts(MARKS)


class Tokenizer:
    """A character a token, marks one; with a space before each text where it is `spaced`."""

    def __init__(self, *, spaced: bool = False) -> None:
        self.calls = 0
        self._space = " " if spaced else ""

    def __call__(self, text: str) -> list[int]:
        self.calls += 1
        parts = re.split("(<end>|<x>)", self._space + text)
        return [token for part in parts for token in ([MARKS[part]] if part in MARKS else map(ord, part))]


@given(st.lists(st.sampled_from(["<end>", "<x>", "a", "<", " ", "<<x>", "end>"]), max_size=12).map("".join))
def test_the_tokens_are_those_of_the_characters(text: str) -> None:
    plain = Tokenizer()
    assert in_parts(plain, cut(text, SPECIAL), Separator("<end>", 1)) == list(map(ord, text))
    spaced = Tokenizer(spaced=True)
    assert one_by_one(spaced, spaced, cut(text, SPECIAL)) == list(map(ord, f" {text}"))


def test_very_many_marks_take_few_calls() -> None:
    tokenizer = Tokenizer()
    text = "".join(f"<x>{number} " for number in range(20_000))
    assert in_parts(tokenizer, cut(text, SPECIAL), Separator("<end>", 1)) == list(map(ord, text))
    assert tokenizer.calls <= 20_000 / 100


def test_a_separator_is_found_where_texts_stay_as_they_are() -> None:
    assert find_separator(Tokenizer(), MARKS) == Separator("<end>", 1)
    assert find_separator(Tokenizer(spaced=True), MARKS) is None
    assert find_separator(Tokenizer(), ["plain words"]) is None
