"""Where the loop stop lies: every loop ends within its bound, and nothing that was asked for is cut."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

import pytest

from modeld.output.repetition import (
    COPIES,
    EVERY,
    LONGEST_BLOCK,
    ROWS,
    WORDS,
    RepetitionWatch,
    allowed_tokens,
    is_words,
)
from modeld.template.shape import request_of
from repetitive_texts import ROWS as ROW_LOOPS
from repetitive_texts import SENTENCES, loops, wanted

pytestmark = pytest.mark.unit
#: As the usual vocabularies cut: words with the space before them, single digits, runs of marks and of white space.
TOKEN = re.compile(r" ?[^\W\d_]{1,8}|\d| ?[^\s\w]{1,4}|_|\s+?(?=\S)|\s{1,4}")


def cut(text: str) -> list[bytes]:
    return [piece.encode() for piece in TOKEN.findall(text)]


def stopped_at(pieces: Iterable[bytes], request: str = "") -> int | None:
    """The number of tokens after which it ended, None where it came through whole."""
    watch = RepetitionWatch(request)
    return next((count for count, piece in enumerate(pieces, start=1) if watch.feed(piece)), None)


def test_the_corpora_are_as_large_as_they_should_be() -> None:
    assert len(wanted()) >= 200
    assert len(list(loops())) >= 100


def test_what_is_wanted_comes_through_whole() -> None:
    assert [answer.name for answer in wanted() if stopped_at(cut(answer.text), answer.request) is not None] == []


def test_every_loop_is_ended() -> None:
    bound = ROWS + EVERY + 40  # the text before it is short
    found = {answer.name: stopped_at(cut(answer.text), answer.request) for answer in loops()}
    assert {name: at for name, at in found.items() if at is None or at > bound} == {}


@pytest.mark.parametrize("sentence", [one for one in SENTENCES if len(one) < 45])
def test_a_short_sentence_is_ended_within_two_hundred_tokens(sentence: str) -> None:
    found = stopped_at(cut("Hello! " + sentence * 100), "hi")
    assert found is not None
    assert found <= 200


def test_a_block_of_any_length_ends_in_any_phase() -> None:
    chance = random.Random(5)
    for length in (*range(1, 12), *range(12, LONGEST_BLOCK, 37), LONGEST_BLOCK):
        block = [b"%d," % chance.randrange(1000) for _ in range(length)]
        lead = [b"<%d>" % chance.randrange(10**6) for _ in range(chance.randrange(60))]
        bound = len(lead) + max(ROWS, COPIES * length) + EVERY
        loop = (block * (bound // length + 2))[chance.randrange(length) :]
        found = stopped_at(lead + loop)
        assert found is not None, length
        assert found <= bound, length


def test_three_copies_of_anything_are_no_loop() -> None:
    for length in range(WORDS // 3, LONGEST_BLOCK, 31):
        sentence = [b" word" + bytes([97 + place // 26, 97 + place % 26]) for place in range(length)]
        assert stopped_at([*(sentence * (COPIES - 1)), b" The", b" end"]) is None
        assert stopped_at(sentence * (COPIES + 1)) is not None, "the control"


def test_copies_cut_into_other_tokens_are_copies() -> None:
    one, other = [b"I'm", b" here", b" to", b" help", b". "], [b"I", b"'m he", b"re t", b"o he", b"lp. "]
    assert stopped_at((one + other + one + one + other) * 40) is not None


def test_a_loop_between_rows_of_its_own_is_found() -> None:
    block = cut("The table is here:\n\n" + "| 0 | 0 |\n" * 40 + "\n")
    found = stopped_at(block * 12)
    assert found is not None
    assert found <= (COPIES + 1) * len(block) + EVERY


def test_tokens_that_show_nothing_end_too() -> None:
    assert stopped_at([b""] * 1000) == WORDS
    assert stopped_at([b"\n"] * 1000) == WORDS


def test_two_sentences_in_turn_are_one_block() -> None:
    assert stopped_at(cut("Let me read the file. I cannot read the file. " * 60)) is not None


def test_a_list_that_counts_is_no_loop() -> None:
    assert stopped_at(cut("".join(f"{n}. I'm here to help you.\n" for n in range(400)))) is None


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_and_paragraphs_are_words_wherever_they_are_cut(sentence: str) -> None:
    for place in range(len(sentence)):
        assert allowed_tokens(sentence[place:] + sentence[:place], 10, "hi") == WORDS


@pytest.mark.parametrize(
    "row", [*ROW_LOOPS, "a,b,c\n", "x = 0;\n", "active,inactive,pending\n", "0, ", "🎉", "-", "AAAA"]
)
def test_data_is_no_sentence(row: str) -> None:
    assert not is_words(row)
    assert allowed_tokens(row, 10, "hi") == ROWS


def test_a_blank_line_ends_a_paragraph_but_no_loop_of_records_in_a_code_block() -> None:
    rule = ".item {\n  margin: 0;\n  padding: 0;\n}\n\n"
    assert is_words(rule)
    assert not is_words(rule, fenced=True)
    for before, bound in (("", WORDS), ("```css\n", ROWS), ("```css\n```\n", WORDS)):
        found = stopped_at(cut(before + rule * 400), "hi")
        assert found is not None
        assert bound <= found <= bound + EVERY + 40
    assert (stopped_at(cut("```\n" + "I am here to help you.\n\n" * 100), "hi") or ROWS) <= WORDS + EVERY + 40


def test_what_the_request_names_may_come_as_often_as_it_says() -> None:
    block = "I will not talk in class.\n"
    assert allowed_tokens(block, 8, "hello") == WORDS
    assert allowed_tokens(block, 8, "Write: I will not talk in class") == ROWS
    assert allowed_tokens(block, 8, "Write something 100 times") == 101 * 8
    assert allowed_tokens(block, 8, "what happened in 2024 on port 8080?") == WORDS, "no numbers of copies"


def test_the_request_is_what_the_person_wrote_last() -> None:
    file = "<file>\n" + "900 bottles\n" * 200 + "</file>\n\n"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": file + "x" * 400},
        {"role": "tool", "content": "77"},
        {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "and now?"}]},
    ]
    assert request_of(messages) == "x" * 400 + "\nand now?"
    assert request_of([]) == ""
