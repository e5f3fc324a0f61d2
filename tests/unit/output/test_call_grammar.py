"""Which calls a grammar allows, when one has begun, and what may have been written by then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from outputs import ARGUMENTS, TOOLS

from modeld.output.format import OutputFormat
from modeld.output.grammar.call_grammar import (
    ANY_OBJECT,
    GAP,
    any_arguments,
    canonical,
    may_begin,
    may_follow,
    must_call,
    tool_grammar,
)
from modeld.output.grammar.schema_bounds import MOST_SCHEMA
from modeld.output.grammar.values import Begin, CallForm, Forced, Lead, Opened, Section
from modeld.output.parser import OutputParser
from shared.catalog.template_detection import ToolStyle

pytestmark = pytest.mark.unit
READ = json.dumps({"name": "read", "arguments": ARGUMENTS})


def openers(style: ToolStyle, tools: list[dict[str, Any]] = TOOLS) -> list[str]:
    """Of all sections of a family."""
    grammar = tool_grammar(OutputFormat(tools=style), tools)
    return [] if grammar is None else sorted(section.opener for section in grammar.sections)


def reported(style: ToolStyle, pieces: list[str]) -> list[Opened]:
    """What a parser says while it reads."""
    parser = OutputParser(OutputFormat(tools=style), (), TOOLS)
    found = []
    for piece in pieces:
        parser.feed(piece.encode())
        opened = parser.take_opened()
        if opened is not None:
            found.append(opened)
    return found


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("generic", ["<tool_call>"]),
        ("hermes", ["<tool_call>"]),
        ("llama3", ["<tool_call>", "<|python_tag|>"]),
        ("mistral", ["<tool_call>", "[TOOL_CALLS]"]),
        ("nemotron", ["<TOOLCALL>", "<tool_call>"]),
        ("granite", ["<tool_call>", "<|tool_call|>"]),
        ("qwen_xml", []),  # writes tags behind <tool_call>
        ("glm", []),
        ("kimi", ["<tool_call>"]),
        ("gpt_oss", []),  # channels: their arguments are held
    ],
)
def test_sections_of_each_family(style: ToolStyle, expected: list[str]) -> None:
    assert openers(style) == expected


def test_without_tools_there_is_nothing_to_hold() -> None:
    assert tool_grammar(OutputFormat(), []) is None
    assert tool_grammar(OutputFormat(), [{"type": "function", "function": {"description": "no name"}}]) is None


def test_odd_parameters_become_any_object() -> None:
    odd: list[dict[str, Any]] = [
        {"function": {"name": "a", "parameters": "text"}},
        {"function": {"name": "b", "parameters": {"type": "array"}}},
    ]
    grammar = tool_grammar(OutputFormat(), odd)
    assert grammar is not None
    assert set(grammar.schemas.values()) == {'{"type": "object"}'}
    assert set(any_arguments(grammar).schemas) == {"a", "b"}


def test_a_section_is_reported_when_its_opener_is_whole_and_once() -> None:
    pieces = [
        "Let me see. <tool",
        "_call",
        ">\n",
        '{"name": "read", ',
        '"argum',
        'ents": {"path"',
        ': "x"}}</tool_call>',
    ]
    found = reported("hermes", pieces)
    assert found == [
        Opened("\n", opener="<tool_call>"),
        Opened('{"path"', "read"),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_each_call_is_reported_by_section_and_by_arguments_at_every_split(size: int) -> None:
    text = f"<tool_call>{READ}</tool_call>\n<tool_call>{READ}</tool_call>"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = reported("hermes", pieces)
    tools = [one.tool for one in found]
    if size == 1000:
        assert len(found) == 1  # all in one piece: only the last is reported, and nothing is left to hold
        return
    assert tools == [None, "read", None, "read"]
    assert all(len(one.written) <= size for one in found)


@pytest.mark.parametrize(
    ("style", "output"),
    [
        ("llama3", '{"name": "read", "parameters": {"path": "x"}}'),
        ("kimi", '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"path": "x"}<|tool_call_end|>'),
        ("mistral", '[TOOL_CALLS]read[ARGS]{"path": "x"}'),
        ("deepseek", '<｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n{"path": "x"}\n```<｜tool▁call▁end｜>'),
        ("functionary_tags", '<function=read>{"path": "x"}</function>'),
        ("functionary_recipient", '>>>read\n{"path": "x"}'),
        ("apertus", '<|tools_prefix|>[{"read": {"path": "x"}}]<|tools_suffix|>'),
    ],
)
def test_arguments_are_reported_wherever_a_family_writes_json(style: ToolStyle, output: str) -> None:
    assert "read" in [one.tool for one in reported(style, list(output))]


def test_arguments_of_a_channel_are_reported() -> None:
    parser = OutputParser(OutputFormat(reasoning="channels", tools="gpt_oss"), (), TOOLS)
    found = []
    for char in '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "x"}<|call|>':
        parser.feed(char.encode())
        found.append(parser.take_opened())
    assert [one.tool for one in found if one] == ["read"]


@pytest.mark.parametrize(
    ("written", "fits"),
    [
        ("", True),
        ("\n", True),
        ("\n{", True),
        (' {"', True),
        ('{"name": "re', True),
        ('{"name": "now"', True),
        ('{"name": "other', False),
        ('{"nom', False),
        ("Hello", False),
        ("[", False),
        (" " * (GAP + 1), False),
        ('{"name": "read", "arguments": {"path', False),  # too late: inside the arguments
    ],
)
def test_what_may_stand_behind_an_opener(written: str, fits: bool) -> None:
    grammar = tool_grammar(OutputFormat(tools="hermes"), TOOLS)
    assert grammar is not None
    assert may_follow(grammar.sections[0], written) is fits


def test_a_listed_section_begins_with_its_bracket() -> None:
    grammar = tool_grammar(OutputFormat(tools="nemotron"), TOOLS)
    assert grammar is not None
    (section,) = [one for one in grammar.sections if one.listed]
    assert may_follow(section, '[{"name')
    assert not may_follow(section, '{"name')


@pytest.mark.parametrize(
    ("schema", "written", "fits"),
    [
        ({"type": "object", "properties": {"a": {}}}, '{"', True),
        ({"type": "object", "properties": {}}, '{"', False),
        ({"type": "object", "properties": {}}, "{", True),
        ({"type": "object"}, '{"', True),
        ({"type": "object"}, '{"a', False),
        ({"type": "object"}, "[", False),
    ],
)
def test_what_may_stand_at_the_begin_of_arguments(schema: dict[str, Any], written: str, fits: bool) -> None:
    assert may_begin(json.dumps(schema), written) is fits


def test_parts_are_written_as_json_usually_is() -> None:
    grammar = tool_grammar(OutputFormat(), TOOLS)
    assert grammar is not None
    assert canonical(grammar.sections[0].calls[0].begin) == '{"name": "read", "arguments": '


def json_calls(*around: tuple[str, str]) -> tuple[CallForm, ...]:
    """The calls of both tools as JSON, with what stands before and after each."""
    before, after = (tuple(one for one in side if one) for side in zip(*around, strict=True)) if around else ((), ())
    return tuple(
        CallForm(name, (*before, "{", '"name"', ":", f'"{name}"', ",", '"arguments"', ":"), ("}", *after))
        for name in ("read", "now")
    )


def test_a_family_that_names_tools_before_a_mark_may_write_arrays_too() -> None:
    grammar = tool_grammar(OutputFormat(tools="mistral"), TOOLS)
    assert grammar is not None
    marked = tuple(CallForm(name, (f"{name}[ARGS]",), ()) for name in ("read", "now"))
    assert grammar.sections == (
        Section("<tool_call>", "</tool_call>", "\n", listed=False, calls=json_calls()),
        Section("[TOOL_CALLS]", "", "", listed=False, calls=(*marked, *json_calls(("[", "]")))),
    )


LONG = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * MOST_SCHEMA}}}


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        (None, ANY_OBJECT),
        ("no schema", ANY_OBJECT),
        ({"type": "array"}, ANY_OBJECT),
        ({"properties": ["path"]}, ANY_OBJECT),
        ({}, '{"type": "object"}'),
        ({"properties": {"é": {"type": "string"}}}, '{"properties": {"é": {"type": "string"}}, "type": "object"}'),
        (LONG, ANY_OBJECT),
    ],
)
def test_arguments_are_held_to_what_a_tool_says_of_them(parameters: object, schema: str) -> None:
    function = {"name": "read", "parameters": parameters}
    for tool in (function, {"type": "function", "function": function}):
        grammar = tool_grammar(OutputFormat(tools="hermes"), [tool])
        assert grammar is not None
        assert grammar.schemas == {"read": schema}
        assert any_arguments(grammar).schemas == {"read": ANY_OBJECT}


def test_a_schema_of_the_greatest_length_is_still_held_to() -> None:
    bare = '{"type": "object", "title": ""}'
    title = "x" * (MOST_SCHEMA - len(bare))
    for extra, held in (("", True), ("x", False)):
        grammar = tool_grammar(
            OutputFormat(), [{"name": "read", "parameters": {"type": "object", "title": title + extra}}]
        )
        assert grammar is not None
        assert (grammar.schemas["read"] != ANY_OBJECT) is held


TAGS_OPENED = OutputFormat(tools="hermes", reasoning="tags", opened=True)
SECTION = Section("<tool_call>", "</tool_call>", "\n", listed=False, calls=json_calls())


@pytest.mark.parametrize(
    ("form", "lead", "forced"),
    [
        (OutputFormat(tools="hermes"), None, Forced("", SECTION)),
        (OutputFormat(described=True), None, Forced("", SECTION)),
        (OutputFormat(tools="hermes"), Lead("\n\n<tool_call>\n", "", json=True), Forced("\n\n", SECTION)),
        (TAGS_OPENED, Lead("\n<tool_call>\n", "", json=True), Forced("</think>\n\n\n", SECTION)),
        (OutputFormat(described=True), Lead("\n<tool_call>\n", "", json=True), Forced("", SECTION)),
        (
            OutputFormat(tools="hermes"),
            Lead(" <fn>", "(", json=False),
            Forced("", begins=(Begin("read", " <fn>read(", json=False), Begin("now", " <fn>now(", json=False))),
        ),
    ],
)
def test_a_turn_that_must_call_begins_as_its_family_or_its_template_does(
    form: OutputFormat, lead: Lead | None, forced: Forced
) -> None:
    grammar = tool_grammar(form, TOOLS)
    assert grammar is not None
    held = must_call(grammar, form, lead)
    assert held is not None
    assert (held.forced, held.sections, held.schemas) == (forced, grammar.sections, grammar.schemas)


def test_a_model_that_was_taught_nothing_is_not_made_to_call() -> None:
    grammar = tool_grammar(OutputFormat(), TOOLS)
    assert grammar is not None
    assert must_call(grammar, OutputFormat(), None) is None


def test_an_array_of_bare_names_in_gemmas_notation_is_read_as_python_or_text() -> None:
    parser = OutputParser(OutputFormat(tools="gemma"), (), TOOLS)
    parser.feed("<|tool_call>call:read{a:None,b:True,c:False,d: 1.50 ,e:word é,f:[None,x],g:null}<tool_call|>".encode())
    _, (call,) = parser.finish()
    assert call.arguments == (
        '{"a": null, "b": true, "c": false, "d": 1.5, "e": "word é", "f": [null, "x"], "g": null}'
    )
