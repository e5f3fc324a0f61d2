"""A tag of thoughts that an answer speaks of is a part of the answer, for every family of tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outputs import TAGS, read

from modeld.output.format import OutputFormat
from shared.catalog.template_detection import THINK_MARKS, THINK_OF_STYLE

pytestmark = pytest.mark.unit
FAMILIES = [
    OutputFormat(reasoning="tags", think_open=(first,), think_close=(last,))
    for first, last in (*THINK_MARKS, *THINK_OF_STYLE.values())
]
#: Where a tag is spoken of: `%s` stands for it.
PLACES = [
    "Here is the page:\n```html\n%s\n<p>x</p>\n```\nDone.",
    "~~~\n%s\n~~~\n",
    "````md\n```\n%s\n```\n%s\n````",
    "1. first\n   ```\n   %s\n   ```\n",
    "Use `%s` or ``a ` %s`` here.",
    'He wrote "%s" and “%s”, and (%s).',
    "> %s\n> quoted",
    "The tag %s opens a thought.",
    "A list:\n- %s\n- other",
    "Like this:\n\n    %s\n\nindented.",
    "| tag | what |\n| --- | --- |\n| %s | opens |\n",
]
WORDS = st.text(alphabet="ab .,\n", max_size=12).map(lambda text: f"so {text}".rstrip() + "\n")


@given(
    st.sampled_from(FAMILIES),
    st.lists(st.tuples(st.sampled_from(PLACES), st.booleans(), WORDS), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 9),
)
def test_a_tag_that_is_spoken_of_takes_no_word_away(
    form: OutputFormat, parts: list[tuple[str, bool, str]], thinks: bool, step: int
) -> None:
    first, last = form.think_open[0], form.think_close[0]
    answer = "Well,\n"
    for place, both, words in parts:
        tag = f"{first}hello{last}" if both else first
        answer += place.replace("%s", tag) + "\n" + (f"and {last} ends it\n" if not both else "") + words
    output = f"{first}why{last}\n\n{answer}" if thinks else answer
    data = output.encode()
    got = read(form, [data[at : at + step] for at in range(0, len(data), step)])
    assert got.text == answer
    assert got.reasoning == ("why" if thinks else "")


@pytest.mark.parametrize("form", FAMILIES, ids=lambda form: form.think_open[0])
def test_a_model_may_think_again_at_the_begin_of_a_line(form: OutputFormat) -> None:
    """The control: there a tag is a mark, also behind code that has ended and an apostrophe that never does."""
    first, last = form.think_open[0], form.think_close[0]
    for said in ("One.\n", "One.\n\n", "```\ncode\n```\n", "that's a ` mark\n", "\n  "):
        got = read(form, [f"{said}{first}\nhm\n{last}\n\nTwo.".encode()])
        assert (got.reasoning, got.text) == ("hm", f"{said.rstrip()}Two."), said


def test_a_closer_without_an_opener_is_still_dropped() -> None:
    for output, text in {
        "so it is 4.</think>\n\n4": "so it is 4.\n\n4",
        "</think>Yes": "Yes",
        "Yes\n</think>\nno": "Yes\n\nno",
    }.items():
        assert read(TAGS, [output.encode()]).text == text
