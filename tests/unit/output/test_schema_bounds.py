"""A schema loses the bounds that no grammar can count to, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from modeld.output.grammar.schema_bounds import MOST_COUNT, MOST_NUMBER, MOST_PATTERN, countable

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("word", ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
def test_counts_are_kept_as_far_as_a_grammar_counts(word: str) -> None:
    for count in (0, 1, MOST_COUNT):
        assert countable({word: count}) == {word: count}
    for beyond in (-1, MOST_COUNT + 1, 1e9, float("nan")):
        assert countable({word: beyond, "type": "string"}) == {"type": "string"}


@pytest.mark.parametrize("word", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
def test_numbers_are_kept_as_far_as_they_can_be_written(word: str) -> None:
    for number in (0, -MOST_NUMBER, MOST_NUMBER, 0.5):
        assert countable({word: number}) == {word: number}
    for number in (MOST_NUMBER + 1, -MOST_NUMBER - 1, float("inf"), float("nan")):
        assert countable({word: number}) == {}


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("a{3}", True),
        (f"a{{{MOST_COUNT}}}", True),
        (f"a{{{MOST_COUNT + 1}}}", False),
        ("a{1,9999}", False),
        ("0" * 5, False),
        ("0001", True),
        ("a" * MOST_PATTERN, True),
        ("a" * (MOST_PATTERN + 1), False),
    ],
)
def test_a_pattern_is_kept_as_far_as_it_counts(pattern: str, kept: bool) -> None:
    assert countable({"pattern": pattern}) == ({"pattern": pattern} if kept else {})


@pytest.mark.parametrize("word", ["enum", "const", "default", "examples"])
def test_data_is_no_schema(word: str) -> None:
    value = [{"maxLength": 10**9}]
    assert countable({word: value}) == {word: value}


@pytest.mark.parametrize("word", ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])
def test_names_of_members_are_no_words_of_the_schema(word: str) -> None:
    inner = {"maxLength": {"maxLength": 10**9, "type": "string"}, "enum": {"maxItems": 10**9}}
    assert countable({word: inner}) == {word: {"maxLength": {"type": "string"}, "enum": {}}}
    assert countable({word: ["x", {"maxLength": 10**9}]}) == {word: ["x", {}]}


@pytest.mark.parametrize("schema", [True, None, "maxLength", 10**20, [], {}])
def test_what_holds_no_bound_stays(schema: Any) -> None:
    assert countable(schema) == schema


def test_bounds_are_found_at_every_depth() -> None:
    schema = {"anyOf": [{"items": {"maxLength": 10**9, "minLength": 1}}], "title": "maxLength", "maxLength": "1e9"}
    assert countable(schema) == {"anyOf": [{"items": {"minLength": 1}}], "title": "maxLength", "maxLength": "1e9"}
