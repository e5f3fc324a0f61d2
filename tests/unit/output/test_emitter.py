"""What grammars find, as events: white space between parts, a call that never was one, and the tools of a turn."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from outputs import PLAIN

from modeld.output.emitter import Emitter, is_object
from modeld.output.grammar.values import Opened
from modeld.output.parser import OutputParser
from modeld.output.tools import ToolBook
from shared.protocol.api import Generating, ReasoningDelta, TextDelta, Thinking, ToolCall, ToolCallDelta

pytestmark = pytest.mark.unit


@pytest.fixture
def out() -> Emitter:
    numbers = itertools.count(1)
    return Emitter(lambda: f"id{next(numbers)}")


def delta(arguments: str, index: int = 0, id: str = "id1", name: str = "read") -> ToolCallDelta:  # noqa: A002
    return ToolCallDelta(index=index, id=id, name=name, arguments=arguments)


def test_an_answer_begins_once_and_its_parts_are_joined_until_they_are_taken(out: Emitter) -> None:
    out.text(" one")
    out.text(" ")
    out.text("two ")
    assert out.take() == [Generating(), TextDelta(text=" one two")]
    out.text("three\n")
    assert out.take() == [TextDelta(text=" three")]
    out.end_text()
    out.end_text()
    assert out.take() == [TextDelta(text="\n")]
    assert out.take() == []
    assert out.said


def test_white_space_alone_is_an_answer_that_says_nothing(out: Emitter) -> None:
    out.text(" \n")
    assert out.take() == []
    out.end_text()
    assert out.take() == [Generating(), TextDelta(text=" \n")]
    assert not out.said


def test_white_space_around_a_thought_is_dropped(out: Emitter) -> None:
    out.text("before \n")
    out.open_reasoning()
    assert out.thinking
    out.reasoning("\n hm,")
    out.reasoning(" so ")
    out.reasoning("\n")
    out.close_reasoning()
    assert not out.thinking
    out.text("\n\n")
    out.text(" after")
    out.end_text()
    assert out.take() == [
        Generating(),
        TextDelta(text="before"),
        Thinking(),
        ReasoningDelta(text="hm, so"),
        Generating(),
        TextDelta(text="after"),
    ]


def test_a_thought_in_pieces_is_joined_until_it_is_taken(out: Emitter) -> None:
    out.open_reasoning()
    out.reasoning("a")
    assert out.take() == [Thinking(), ReasoningDelta(text="a")]
    out.reasoning("b")
    assert out.take() == [ReasoningDelta(text="b")]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("said", [False, True])
def test_thoughts_are_the_answer_only_where_nothing_else_was_said(out: Emitter, closed: bool, said: bool) -> None:
    if said:
        out.text("said")
    out.open_reasoning()
    out.reasoning(" inner ")
    out.inner_close()
    out.reasoning("outer ")
    if closed:
        out.close_reasoning()
    out.take()
    out.answer_with_thoughts()
    answered = not closed and not said
    assert out.take() == ([Generating(), TextDelta(text="outer")] if answered else [])
    assert out.thinking is (said and not closed)


def test_thoughts_before_a_call_are_no_answer(out: Emitter) -> None:
    out.begin_call("read")
    out.end_call()
    out.open_reasoning()
    out.reasoning("so")
    out.take()
    out.answer_with_thoughts()
    assert out.take() == []


def test_thoughts_of_an_earlier_round_do_not_come_again(out: Emitter) -> None:
    for thought in ("first", "second"):
        out.open_reasoning()
        out.reasoning(thought)
    out.take()
    out.answer_with_thoughts()
    assert out.take() == [Generating(), TextDelta(text="second")]


def test_calls_are_numbered_and_their_arguments_stream(out: Emitter) -> None:
    out.text("look: ")
    out.begin_call("read")
    out.arguments("")
    out.arguments('{"a"')
    assert out.take() == [Generating(), TextDelta(text="look:"), delta('{"a"')]
    out.arguments(": 1}")
    assert out.end_call()
    out.text("\n")
    out.begin_call("now", "own")
    assert out.end_call()
    out.text(" done")
    assert out.take() == [
        delta(": 1}"),
        delta("{}", 1, "own", "now"),
        TextDelta(text="done"),
    ]
    assert out.calls == [
        ToolCall(id="id1", name="read", arguments='{"a": 1}'),
        ToolCall(id="own", name="now", arguments="{}"),
    ]


def test_a_call_after_a_thought_says_that_the_answer_begins(out: Emitter) -> None:
    out.open_reasoning()
    out.reasoning("so")
    out.begin_call("read")
    assert out.take() == [Thinking(), ReasoningDelta(text="so"), Generating(), delta("")]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"a": ', "cannot be read as JSON"),
        ("{} {}", "cannot be read as JSON"),
        ("\n", "cannot be read as JSON"),
        ('{"a": NaN}', "NaN"),
        (f'{{"a": {"9" * 5000}}}', "too many digits"),
        ('{"a": ' * 101 + "1" + "}" * 101, "too deeply"),
    ],
)
def test_a_call_whose_arguments_are_no_object_fails_and_says_why(out: Emitter, arguments: str, reason: str) -> None:
    out.begin_call("read")
    out.arguments(arguments)
    assert out.end_call()
    (failed,) = out.calls
    assert (failed.name, failed.arguments) == ("read", "{}")
    assert reason in failed.fault
    assert not out.end_call(), "it is over"


def test_a_call_that_the_model_left_unfinished_fails_unless_the_output_was_cut(out: Emitter) -> None:
    out.begin_call("read")
    out.arguments('{"a": ')
    out.begin_call("write")
    out.arguments('{"b": ')
    assert [call.name for call in out.calls] == ["read"]
    out.end_unfinished()
    assert [(call.name, bool(call.fault)) for call in out.calls] == [("read", True), ("write", True)]
    out.end_unfinished()
    assert len(out.calls) == 2


def test_what_belongs_to_no_call_is_nothing(out: Emitter) -> None:
    out.arguments("{}")
    out.expect_arguments("{")
    assert not out.end_call()
    assert (out.take(), out.calls, out.opened) == ([], [], None)


def test_arguments_that_come_next_are_reported_with_what_is_there(out: Emitter) -> None:
    out.begin_call("read")
    assert out.opened is None
    out.expect_arguments('{"a')
    assert out.opened == Opened('{"a', "read")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("{}", True),
        (' {"a": [1, "x", null]} ', True),
        ("[]", False),
        ("1", False),
        ("", False),
        ("{", False),
        ('{"a": Infinity}', False),
        ('{"a": -Infinity}', False),
        ('{"a": NaN}', False),
        ('{"a": ' * 100 + "1" + "}" * 100, True),
        ('{"a": ' * 101 + "1" + "}" * 101, False),
        ('{"a": ' * 50_000, False),
    ],
)
def test_an_object_is_distinguished_from_what_only_looks_like_one(text: str, whole: bool) -> None:
    assert is_object(text) is whole


def test_what_comes_after_the_end_is_nobodys() -> None:
    parser = OutputParser(PLAIN)
    parser.feed(b"one")
    events, _ = parser.finish()
    assert parser.feed(b"two") == []
    assert [event for event in events if isinstance(event, TextDelta)] == []


def test_an_opened_call_is_reported_once() -> None:
    parser = OutputParser(PLAIN)
    assert parser.take_opened() is None
    parser._out.opened = Opened("{", "read")
    assert parser.take_opened() == Opened("{", "read")
    assert parser.take_opened() is None


def schema(**properties: Any) -> dict[str, Any]:
    return {"name": "read", "parameters": {"type": "object", "properties": properties}}


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ({"type": "string"}, True),
        ({"type": "integer"}, False),
        ({"type": ["integer", "string"]}, True),
        ({"type": ["integer", "null"]}, False),
        ({"type": [1, {}]}, True),
        ({"type": 7}, True),
        ({}, True),
        ("nonsense", True),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, True),
        ({"anyOf": [{"type": "integer"}, "nonsense"]}, False),
        ({"oneOf": [{"oneOf": [{"type": "string"}]}, {"type": "null"}]}, True),
        ({"oneOf": "nonsense", "type": "object"}, False),
        ({"anyOf": [{"type": "boolean"}], "type": "string"}, True),
    ],
)
def test_a_parameter_is_text_where_its_schema_allows_it_or_says_nothing(parameter: Any, text: bool) -> None:
    book = ToolBook([schema(path=parameter, other={"type": "integer"})])
    assert book.wants_text("read", "path") is text
    assert not book.wants_text("read", "other")


def test_the_tools_of_a_turn_are_looked_up_by_name_and_odd_ones_are_left_out() -> None:
    book = ToolBook([
        schema(a={"type": "integer"}),
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": "nonsense"},
        {"function": {"name": 7}},
        {"name": "odd", "parameters": {"properties": []}},
        {"name": "odder", "parameters": "nonsense"},
    ])  # fmt: skip
    assert book
    assert [name in book for name in ("read", "now", "odd", "odder", "7", "nonsense")] == [True] * 4 + [False] * 2
    assert not book.wants_text("read", "a")
    assert all(book.wants_text(name, "a") for name in ("now", "odd", "odder", "nobody"))
    assert book.wants_text("read", "b")
    assert not ToolBook([])
    assert not ToolBook([{"function": "nonsense"}])
