"""Stops, characters, control tokens, stages and cost: what holds for every family."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outputs import CHANNELS, PLAIN, TAGS, TOOLS, read, whole

from modeld.output.format import OutputFormat
from modeld.output.parser import OutputParser, new_call_id
from modeld.output.stops import StopFilter
from shared.protocol.api import Generating, Sampling, TextDelta, Thinking, ToolCallDelta
from shared.protocol.faults import InvalidParams
from shared.protocol.message import decode_params

pytestmark = pytest.mark.unit


@given(
    st.text(alphabet="abc ", max_size=40),
    st.lists(st.text(alphabet="abc ", min_size=1, max_size=4), max_size=3),
    st.integers(1, 5),
)
def test_a_stop_is_found_across_borders_and_nothing_else_is_lost(text: str, stops: list[str], step: int) -> None:
    found = [(text.find(stop), -len(stop)) for stop in stops if stop in text]
    expected = text[: min(found)[0]] if found else text
    stopper = StopFilter(stops)
    got = "".join(stopper.feed(text[at : at + step]) for at in range(0, len(text), step)) + stopper.finish()
    assert got == expected
    assert stopper.stopped == bool(found)


def test_what_comes_behind_a_stop_is_dropped() -> None:
    parser = OutputParser(PLAIN, ["END"])
    first = parser.feed(b"one EN")
    assert not parser.stopped
    second = parser.feed(b"D two")
    assert parser.stopped
    assert parser.feed(b"three") == []
    last, _ = parser.finish()
    text = "".join(event.text for event in [*first, *second, *last] if isinstance(event, TextDelta))
    assert text == "one "


@pytest.mark.parametrize("stops", [["x"] * 65, ["x" * 257]])
def test_stops_of_any_number_and_length_are_refused_by_name(stops: list[str]) -> None:
    """A single one of a megabyte would take a terabyte to look for."""
    with pytest.raises(InvalidParams) as refused:
        decode_params(msgspec.Raw(msgspec.json.encode({"stop": stops})), Sampling)
    assert refused.value.at.startswith("$.stop")
    most = msgspec.Raw(msgspec.json.encode({"stop": [f"{number}" * 128 for number in range(10, 74)]}))
    assert len(decode_params(most, Sampling).stop) == 64


def test_text_held_for_a_stop_comes_out_at_the_end() -> None:
    assert whole(PLAIN, "almost EN", stops=["END"]).text == "almost EN"


@given(st.text(max_size=30), st.integers(1, 4))
def test_characters_are_never_broken(text: str, step: int) -> None:
    data = text.encode("utf-8", "replace")
    got = read(PLAIN, [data[at : at + step] for at in range(0, len(data), step)])
    assert got.text == data.decode()
    assert (
        all("\ufffd" not in event.text for event in got.events if isinstance(event, TextDelta))
        or "\ufffd" in data.decode()
    )


def test_an_unfinished_character_is_shown_as_such_and_not_lost() -> None:
    assert read(PLAIN, ["é".encode()[:1]]).text == "\ufffd"


@pytest.mark.parametrize("form", [PLAIN, TAGS, CHANNELS])
def test_a_control_token_that_means_nothing_here_is_never_shown(form: OutputFormat) -> None:
    parser = OutputParser(form, [], TOOLS)
    events = parser.feed(b"Yes") + parser.feed(b"<|im_start|>", control=True) + parser.feed(b".")
    last, _ = parser.finish()
    assert "".join(event.text for event in events + last if isinstance(event, TextDelta)) == "Yes."


def test_a_control_token_may_be_a_stop_or_a_mark_of_the_format() -> None:
    stopped = OutputParser(PLAIN, ["<|eot|>"])
    stopped.feed(b"<|eot|>", control=True)
    assert stopped.stopped
    marked = OutputParser(TAGS, [], TOOLS)
    marked.feed(b"<think>", control=True)
    assert isinstance(marked.feed(b"x")[0], Thinking)


def test_without_tools_marks_of_calls_are_text() -> None:
    said = '<tool_call>{"name": "read", "arguments": {}}</tool_call>'
    assert whole(TAGS, said, tools=[]).text == said


def test_stages_are_reported_once_each_in_order() -> None:
    events = whole(TAGS, "<think>a</think>b\nc").events
    assert [type(event) for event in events if isinstance(event, (Thinking, Generating))] == [Thinking, Generating]


def test_arguments_stream_while_they_are_written() -> None:
    parser = OutputParser(TAGS, [], TOOLS, new_id=lambda: "id1")
    begun = parser.feed(b'<tool_call>{"name": "read", "arguments": {"pa')
    assert [event for event in begun if isinstance(event, ToolCallDelta)] == [
        ToolCallDelta(index=0, id="id1", name="read", arguments='{"pa')
    ]
    assert parser.feed(b'th": "x') == [ToolCallDelta(index=0, id="id1", name="read", arguments='th": "x')]


@pytest.mark.parametrize("rest", ["", '{"pa', '{"path": "x"', '{"path": "x"}', '{"path": x}}'])
def test_cut_or_broken_json_is_no_call(rest: str) -> None:
    got = whole(TAGS, '<tool_call>{"name": "read", "arguments": ' + rest, cut=True)
    whole_ones = [call.arguments for call in got.calls if not call.fault]
    assert whole_ones == (['{"path": "x"}'] if rest == '{"path": "x"}' else [])


@pytest.mark.parametrize("value", ['{"path": NaN}', '{"path": ' + "9" * 4301 + "}", "[1, 2]", '"x"', '{"path": x}'])
@pytest.mark.parametrize("order", ['{"name": "read", "arguments": %s}', '{"arguments": %s, "name": "read"}'])
def test_a_call_that_cannot_be_read_is_a_failed_one_and_leaves_no_rest(value: str, order: str) -> None:
    got = whole(TAGS, f"<tool_call>{order % value}</tool_call>Then.")
    (call,) = got.calls
    assert (call.name, call.arguments) == ("read", "{}")
    assert call.fault
    assert got.text in ("Then.", "")


def test_a_thought_cut_by_the_limit_is_no_answer() -> None:
    assert whole(TAGS, "<think>I was about to", cut=True).text == ""


def test_call_ids_suit_the_strictest_templates() -> None:
    one, other = new_call_id(), new_call_id()
    assert len(one) == 9
    assert one.isalnum()
    assert one != other


@pytest.mark.parametrize(
    ("begin", "unit"),
    [
        ("", "word "),
        ("", "\n"),
        ("", "<thin"),
        ("<think>", "hm "),
        ('<tool_call>{"name": "read", "arguments": {"path": "', "\\n"),
        ('{"name": "read", "x": "', "y"),
        ("<tool_call>", "<"),
    ],
)
def test_cost_grows_with_the_length_alone(begin: str, unit: str) -> None:
    """Eight times the output costs about eight times, not sixty-four; CPU time, three tries."""

    def cost(units: int) -> float:
        pieces = [begin.encode(), *[unit.encode()] * units]
        began = time.process_time()
        read(TAGS if begin != '{"name": "read", "x": "' else OutputFormat(tools="llama3"), pieces)
        return time.process_time() - began

    assert min(cost(16_000) / max(cost(2_000), 1e-4) for _ in range(3)) < 24
