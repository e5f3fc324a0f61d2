"""What acts is an escape, one line stays one line, Markdown holds no link that was not meant."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hostile import HOSTILE, markup, raw
from shared.errors import ModelNotFound
from shared.text import shown
from shared.text.shown import code_span, cut, escaped, fenced, in_markdown, one_line, readable, title

TEXTS = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x9b\n\t\r\u202e\u200d`[]<\\"))
MARKS = [
    "`",
    "``",
    "```",
    "[x](y)",
    "![p](q)",
    "<b>",
    "<http://x.y>",
    "\\",
    "a",
    "-",
    ">",
    "~~~",
    "[",
    "]",
    "(",
    "]:",
    "[x]",
    "*",
    "#",
]
PIECES = st.lists(st.sampled_from([*MARKS, " ", "    ", "\n", "\n\n", "\t"]), max_size=12)


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_acts_is_left(kind: str) -> None:
    for make in (escaped, one_line, readable, in_markdown, title, code_span):
        assert raw(make(HOSTILE[kind])) == [], make


def test_every_control_and_format_character_of_unicode_is_shown() -> None:
    acting = [
        chr(at) for at in range(sys.maxunicode + 1) if unicodedata.category(chr(at)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    arabic = set(
        "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    )  # have a shape
    egyptian = {chr(at) for at in range(0x13430, 0x13440)}
    left = [each for each in acting if one_line(each) == each]
    assert set(left) <= arabic | egyptian, [f"{ord(each):x}" for each in left]


def test_what_people_write_stays_as_it_is() -> None:
    for text in ("naïve café", "日本語", "Ελληνικά", "עברית", "نص عربي", "a\\b C:\\new", "🙂 model — 7B…", "█▁▂"):
        assert escaped(text) == one_line(text) == readable(text) == text


def test_an_answer_keeps_its_lines_and_its_joined_emoji() -> None:
    assert readable("a\n\tb\r\n👨\u200d👩 ❤\ufe0f\x1b[31m") == "a\n\tb\n👨\u200d👩 ❤\ufe0f[31m"


@given(TEXTS)
def test_escapes_are_those_of_json(text: str) -> None:
    document = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(escaped(document)) == json.loads(json.dumps({"text": text}))
    assert raw(escaped(document)) == []


@given(TEXTS, st.integers(1, 60))
def test_one_line_is_one_line_of_that_length_and_stable(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert len(line.splitlines()) <= 1
    assert one_line(line, most) == line
    line.encode()


def test_what_is_cut_says_so_and_no_escape_is_torn() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert one_line("ab\x1bcd", 6) == "ab…"
    assert one_line("short", 5) == "short"


@given(PIECES)
def test_markdown_makes_no_link_image_or_html_of_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    for make in (in_markdown, title, code_span, fenced):
        assert markup(make(text)) == [], make


def test_the_reader_of_markdown_sees_what_acts() -> None:
    assert markup("[x](command:y) ![x](z) <b> <http://x.y>") != []
    assert markup("[x]: z\n\n[x]") != []


def test_code_spans_of_ours_stay_code_in_markdown() -> None:
    assert in_markdown("`/compact` makes room") == "`/compact` makes room"
    assert in_markdown("`[x](y)` [x](y)") == "`[x](y)` \\[x\\](y)"
    assert in_markdown("\\[x](y)") == "\\\\\\[x\\](y)"
    assert in_markdown("a\n```py\nx[0]\n```\n[b]") == "a\n```py\nx[0]\n```\n\\[b\\]"
    assert "[x]" not in in_markdown("`a\n\n[x](y) `"), "a paragraph ends what looks like a span over two"


@given(TEXTS)
def test_nothing_ends_its_code_span_or_its_fence(text: str) -> None:
    (paragraph,) = [token for token in MarkdownIt("commonmark").parse(f"x{code_span(text)}x") if token.children]
    assert [child.type for child in paragraph.children or []] == ["text", "code_inline", "text"]
    assert [token.type for token in MarkdownIt("commonmark").parse(fenced(escaped(text)))] == ["fence"]


def test_the_message_of_an_error_is_one_line_whatever_its_fields_hold() -> None:
    error = ModelNotFound(requested="\n".join(HOSTILE.values()), near=[])
    assert raw(error.message) == []
    assert "\n" not in error.message
    assert len(error.message) <= shown.MESSAGE_MOST
    assert error.data["requested"].startswith("\x1b"), "the field itself stays as it came"


def test_few_write_past_the_door_of_the_terminal() -> None:
    """Who does has made harmless what it writes, or writes to a pipe of ours."""
    root = Path(shown.__file__).parents[2]
    past = re.compile(r"\bdraw\(|stdout\.buffer\.write|stderr\.buffer|os\.write\([12],|sys\.__std(?:out|err)__")
    sources = [path for part in ("acp_bridge", "modeld", "shared") for path in (root / part).rglob("*.py")]
    found = {path.relative_to(root).as_posix() for path in sources if past.search(path.read_text(encoding="utf-8"))}
    assert found == {
        "acp_bridge/cli/export_command.py",  # an exported conversation, as an answer is shown
        "acp_bridge/faces/terminal/events.py",  # JSON, escaped in its own way
        "acp_bridge/faces/terminal/plain.py",  # an answer
        "acp_bridge/tools/grep.py",  # the pipe of a child to its bridge
        "modeld/cli/context.py",  # JSON, escaped in its own way
        "modeld/cli/watch.py",  # the live view, drawn from single lines
        "shared/text/console.py",
    }


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a", "`a`"),
        ("", "`  `"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("a``", "``` a`` ```"),
        ("a\nb", "`a\\nb`"),
        ("\U000e0061", "`\\udb40\\udc61`"),
    ],
)
def test_a_span_of_code_is_just_long_enough(text: str, span: str) -> None:
    assert code_span(text) == span


def test_bounds_that_are_asked_for_are_kept() -> None:
    assert len(code_span("x" * 50, 10)) == 12
    assert len(title("x" * 50, 10)) == 10


@pytest.mark.parametrize(
    ("text", "language", "block"),
    [
        ("  a\n", "", "```\n  a\n```"),
        ("a", "py", "```py\na\n```"),
        ("```\n", "", "````\n```\n````"),
    ],
)
def test_a_block_of_code_is_just_long_enough(text: str, language: str, block: str) -> None:
    assert (fenced(text, language) if language else fenced(text)) == block
