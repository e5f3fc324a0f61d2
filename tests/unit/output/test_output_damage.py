"""Damaged outputs of every family end, cost no more than their length, and give no call that cannot be read."""

from __future__ import annotations

import json
from itertools import product

import pytest
from outputs import read, whole

from fuzz import fuzz_output
from modeld.output.calls import STYLES
from modeld.output.format import OutputFormat
from modeld.output.grammar.call_grammar import ANY_OBJECT, tool_grammar
from modeld.output.grammar.schema_bounds import MOST_COUNT, countable
from modeld.output.grammar.schema_grammar import schema_grammar
from modeld.output.markers import Markers
from modeld.output.reader import MOST_LOOKS, NoProgress, Reader, Steps
from modeld.output.tools import ToolBook
from shared.catalog.template_detection import ToolStyle
from shared.text.nesting import DEEPEST

pytestmark = pytest.mark.unit
LENGTH = 4000
NESTED = ('{"function":', '{"name": "read", "arguments": [', '{"a":', "[", "{a:", "<a>", "(")


def test_no_damaged_output_stops_a_parser_or_costs_more_than_its_length() -> None:
    """The first of a million; `make fuzz` tries them all, with another seed each time."""
    defects, _ = fuzz_output.run(3000, seed=1)
    assert defects == []


@pytest.mark.parametrize(
    ("style", "output"),
    [("gemma", "<|tool_call>call:read{path:[1}"), ("function_gemma", "<start_function_call>call:read{path:[1}")],
)
def test_an_array_closed_by_a_brace_ends_the_call(style: ToolStyle, output: str) -> None:
    assert [call.fault != "" for call in whole(OutputFormat(tools=style), output).calls] == [True]


@pytest.mark.parametrize("style", [*STYLES])
def test_an_output_that_nests_without_end_is_read_in_its_length(style: ToolStyle) -> None:
    form = OutputFormat(tools=style, reasoning="tags")
    for opener, unit in product(STYLES[style].openers, NESTED):
        data = (opener + unit * (LENGTH // len(unit))).encode()
        for cuts in ([], list(range(7, len(data), 7))):
            assert fuzz_output.try_case(fuzz_output.Case(form, data, cuts)) <= fuzz_output.MOST_WORK


@pytest.mark.parametrize("order", ['{"name": "read", "arguments": %s}', '{"arguments": %s, "name": "read"}'])
def test_arguments_that_nest_too_deeply_are_a_failed_call(order: str) -> None:
    def calls(levels: int) -> list[str]:
        value = '{"path": ' + "[" * levels + "]" * levels + "}"
        output = f"<tool_call>{order % value}</tool_call>"
        told = whole(OutputFormat(tools="hermes"), output)
        assert told.text == ""
        return [call.fault or call.arguments for call in told.calls]

    assert calls(2000) == ["its arguments nest too deeply"]
    assert calls(DEEPEST) == ["its arguments nest too deeply"]
    assert [type(json.loads(one)) for one in calls(DEEPEST - 1)] == [dict]


def test_a_grammar_that_goes_round_in_a_circle_is_found_out() -> None:
    """Whatever way it looks; one that takes a character each time goes on."""

    def circle(look: int) -> Steps[None]:
        while True:
            if look == 0:
                yield from reader.peek()
            elif look == 1:
                yield from reader.accept("x")
            elif look == 2:
                yield from reader.skip_space()
            else:
                yield from reader.before(Markers(("a",)))

    for look in range(4):
        reader = Reader()
        reader.feed("abc")
        with pytest.raises(NoProgress):
            next(circle(look))
        assert reader.work < 2 * MOST_LOOKS

    def sound() -> Steps[int]:
        taken = 0
        while (yield from reader.accept("a")):
            taken += 1
        return taken

    reader = Reader()
    reader.feed("a" * 10 * MOST_LOOKS)
    reader.end()
    with pytest.raises(StopIteration) as end:
        next(sound())
    assert end.value.value == 10 * MOST_LOOKS


def test_text_is_put_back_once() -> None:
    reader = Reader()
    reader.unread("a")
    with pytest.raises(NoProgress):
        reader.unread("a")


def test_strings_of_python_that_never_end_are_looked_at_once() -> None:
    """What each of a hundred thousand quotes began was read to the end of the text: minutes, and no cancel."""
    output = "<|tool_call_start|>[read(path=" + '\\"' * 100_000 + "<|tool_call_end|>"
    assert read(OutputFormat(tools="lfm2"), [output.encode()]).text == output


def test_a_schema_of_any_shape_is_a_grammar_or_a_reason() -> None:
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    choice = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}}
    chain = {"$ref": "#/$defs/d0", "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(10_000)}}
    deep = '{"type": "array", "items": ' * 10_000 + "{}" + "}" * 10_000
    for schema in (*map(json.dumps, (loop, choice, chain)), deep):
        with pytest.raises(ValueError, match=r"\w"):
            schema_grammar(schema)
    tree = {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["array", "null"], "items": {"$ref": "#/$defs/a"}}}}
    assert schema_grammar(json.dumps(tree))


def test_alternatives_of_a_parameter_may_nest_without_end() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(5000):
        schema = {"anyOf": [schema]}
    tool = {"function": {"name": "read", "parameters": {"properties": {"path": schema}}}}
    assert ToolBook([tool]).wants_text("read", "path")


def test_bounds_that_no_grammar_counts_to_are_left_out_and_the_rest_stays() -> None:
    kept = {
        "type": "object",
        "properties": {
            "maxLength": {"type": "string", "maxLength": MOST_COUNT, "pattern": "^a{0,9}$"},
            "list": {"type": "array", "items": {"enum": [10**30, "x"]}, "minItems": 1},
        },
    }
    assert countable(kept) == kept
    beyond = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": MOST_COUNT + 1, "maxLength": 10**9, "pattern": "^(a{99999})$"},
            "b": {"type": "array", "maxItems": 10**9, "items": {"type": "number", "maximum": 1e300}},
            "c": {"anyOf": [{"type": "integer", "minimum": -(10**400)}, {"type": "string", "pattern": "a" * 10_000}]},
        },
    }
    assert countable(beyond) == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "array", "items": {"type": "number"}},
            "c": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
    }


def test_a_schema_longer_than_most_windows_is_any_object() -> None:
    def schema(members: int) -> str:
        properties = {f"member{number}": {"type": "string"} for number in range(members)}
        tool = {"function": {"name": "read", "parameters": {"type": "object", "properties": properties}}}
        grammar = tool_grammar(OutputFormat(tools="hermes"), [tool])
        assert grammar is not None
        return grammar.schemas["read"]

    assert "member9" in schema(10)
    assert schema(10_000) == ANY_OBJECT
