"""A grammar of a schema takes what the schema takes, in the order of its members, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from modeld.output.grammar.schema_grammar import MOST_RULES, Endless, schema_grammar

pytestmark = pytest.mark.unit

#: how deep `value` may hold itself below: the grammars themselves have no bound
DEPTH = 3
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[a-z]\w*|\{\d+,\d*\}|\S')


def expression(grammar: str) -> re.Pattern[str]:
    """The grammar as a regular expression, its recursion cut at `DEPTH`."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())

    def rule(name: str, above: tuple[str, ...]) -> str:
        if above.count(name) >= DEPTH:
            return "(?!)"
        parts = []
        for token in _TOKEN.findall(rules[name]):
            if token[0] == '"':
                parts.append(f"(?:{re.escape(json.loads(token))})")
            elif token[0].isalpha():
                parts.append(f"(?:{rule(token, (*above, name))})")
            else:
                parts.append("(?:" if token == "(" else token)
        return "".join(parts)

    return re.compile(rule("root", ()))


def takes(schema: Any, text: str) -> bool:
    return expression(schema_grammar(json.dumps(schema))).fullmatch(text) is not None


TWO = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}
REQUIRED = {**TWO, "required": ["a", "b"]}
LAST = {**TWO, "required": ["b"]}
LIST = {"type": "array", "items": {"type": "null"}}


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"type": "integer"}, ["0", "-1", "12", "9" * 18], ["", "01", "1.5", "--1", "9" * 19, '"1"', " 1"]),
        ({"type": "number"}, ["0", "-1.25", "1e5", "1E+5", "2.5e-300"], ["1.", ".5", "1e", "1e+5000", "NaN"]),
        ({"type": "boolean"}, ["true", "false"], ["True", "null", "1"]),
        ({"type": "null"}, ["null"], ["", "none"]),
        (
            {"type": "string"},
            ['""', '"a b"', '"\\n\\u00e9\\""', '"é"', r'"\\"'],
            ["a", '"', '"\n"', r'"\x"', r'"\u12"', '"""'],
        ),
        ({"type": "string", "minLength": 2}, ['"ab"', '"abcdef"'], ['"a"', '""', "ab"]),
        ({"type": "string", "maxLength": 2}, ['""', '"ab"'], ['"abc"']),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ['"a"', '"ab"'], ['""', '"abc"']),
        (True, ["null", "[1, {}]", '{"a": [true]}', '"x"', "-1.5"], ["", "[1,]", "{a: 1}"]),
        ({}, ["null", "[]", "{ }"], ["", "[,]"]),
        ({"description": "what", "title": "t", "type": "null"}, ["null"], ["0"]),
        ({"const": {"a": [1, "é\n"]}}, ['{"a": [1, "é\\n"]}'], ['{"a":[1]}', "{}"]),
        ({"enum": [1, "two", None]}, ["1", '"two"', "null"], ["two", "2", "true"]),
        ({"anyOf": [{"type": "null"}, {"const": 1}]}, ["null", "1"], ["2", ""]),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, ["null", "1"], ["2", ""]),
        ({"type": ["null", "boolean", "null"]}, ["null", "true"], ["0"]),
        ({"type": ["string", "null"], "maxLength": 1}, ['"a"', "null"], ['"ab"']),
        (LIST, ["[]", "[null]", "[ null , null ]", "[\n  null]"], ["[", "[null,]", "[0]", "[    null]"]),
        ({"type": "array"}, ["[]", '[1, "a", [null]]'], ["[1 2]"]),
        ({**LIST, "minItems": 1}, ["[null]", "[null,null]"], ["[]"]),
        ({**LIST, "minItems": 2}, ["[null,null]", "[null,null,null]"], ["[]", "[null]"]),
        ({**LIST, "maxItems": 0}, ["[]", "[  ]"], ["[null]"]),
        ({**LIST, "maxItems": 1}, ["[]", "[null]"], ["[null,null]"]),
        (
            {**LIST, "minItems": 2, "maxItems": 3},
            ["[null,null]", "[null,null,null]"],
            ["[null]", "[" + "null," * 3 + "null]"],
        ),
        (
            TWO,
            ["{}", "{ }", '{"a": 1}', '{"b":true}', '{"a" : 1 , "b" : true}'],
            ['{"b": true, "a": 1}', '{"a": 1,}', "{,}", '{"a": true}', '{"c": 1}'],
        ),
        ({"properties": TWO["properties"]}, ["{}", '{"a": 1}'], ["1"]),
        (REQUIRED, ['{"a":1,"b":false}', '{\n "a": 1,\n "b": false\n}'], ["{}", '{"a":1}', '{"b":true}']),
        (LAST, ['{"b":true}', '{"a":1,"b":true}'], ["{}", '{"a":1}']),
        ({**TWO, "required": ["a"]}, ['{"a":1}', '{"a":1,"b":true}'], ["{}", '{"b":true}']),
        ({**TWO, "additionalProperties": False}, ["{}", '{"a":1}'], ['{"a":1,"c":2}']),
        ({"type": "object"}, ["{}", '{"any": [1]}'], ["[]", "{1: 2}"]),
        ({"type": "object", "additionalProperties": True}, ['{"any": 1, "b": 2}'], ['{"any": 1 "b": 2}']),
        ({"type": "object", "additionalProperties": False}, ["{}", "{ }"], ['{"any": 1}']),
        ({"type": "object", "properties": {'"\\': {"type": "null"}}}, ['{"\\"\\\\":null}'], ['{"a":null}']),
        (
            {"$ref": "#/$defs/list", "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}},
            ["[]", "[[]]", "[[],[]]"],
            ["", "[1]", "]"],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}},
                "$defs": {"n": {"$ref": "#/$defs/m"}, "m": {"type": "null"}},
            },
            ['{"a":null,"b":null}'],
            ['{"a":1}'],
        ),
        (
            {
                "anyOf": [{"$ref": "#/definitions/n"}, {"$ref": "#/definitions/n"}],
                "definitions": {"n": {"type": "null"}},
            },
            ["null"],
            ["1"],
        ),
    ],
)
def test_what_is_taken_is_what_the_schema_takes(schema: Any, taken: list[str], refused: list[str]) -> None:
    assert [text for text in taken if not takes(schema, text)] == []
    assert [text for text in refused if takes(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "pattern": "a+"}, "a schema that a grammar cannot say"),
        (False, "a schema that a grammar cannot say"),
        ([], "a schema that a grammar cannot say"),
        ({"enum": []}, "nothing to choose from"),
        ({"type": []}, "nothing to choose from"),
        ({"type": "nonsense"}, "type nonsense"),
        ({"title": "of no type"}, "type None"),
        ({"$ref": 1}, "reference 1"),
        ({"$ref": "http://elsewhere"}, "reference http://elsewhere"),
        ({"$ref": "#/elsewhere"}, "reference #/elsewhere"),
        ({"$ref": "#/title/x", "title": "a"}, "reference #/title/x"),
        ({"properties": []}, "members of a schema of their own"),
        ({"type": "object", "additionalProperties": {"type": "null"}}, "members of a schema of their own"),
        ({**TWO, "required": ["a", "c"]}, "a member is required that is not described"),
        ({**LIST, "minItems": 2, "maxItems": 1}, "a count"),
        ({"type": "string", "minLength": "1"}, "a count"),
        ({"type": "string", "maxLength": 1.5}, "a count"),
    ],
)
def test_what_no_grammar_says_is_left_to_the_engine(schema: Any, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$") as refused:
        schema_grammar(json.dumps(schema))
    assert not isinstance(refused.value, Endless)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "#"}, "reference # to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "reference #/$defs/a to itself"),
        ({"enum": [1], "anyOf": [], "const": 0, "$ref": "#"}, "reference # to itself"),
        ({"anyOf": [{"const": number} for number in range(MOST_RULES)]}, f"a schema of more than {MOST_RULES} rules"),
        (
            {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5000)}},
            "it nests more than 100 levels deep",
        ),
    ],
)
def test_what_has_no_end_is_not_left_to_anybody(schema: Any, why: str) -> None:
    with pytest.raises(Endless, match=f"^{re.escape(why)}$"):
        schema_grammar(json.dumps(schema))


def test_a_schema_of_as_many_rules_as_are_allowed_is_written() -> None:
    schema = {"anyOf": [{"const": number} for number in range(MOST_RULES - 1)]}
    assert f"r{MOST_RULES - 1} ::= " in schema_grammar(json.dumps(schema))
