"""A JSON schema as a grammar with bounded white space, for an engine whose own grammar has no bound. Pure.

A small model that may write white space between two parts writes it until its tokens are spent. Raises ValueError
for what a grammar cannot say, so that the engine's own reading can have it.
"""

from __future__ import annotations

import json
from typing import Any

from shared.text.nesting import TOO_DEEP, loads_json

#: More rules than any tool's schema has; alternatives within alternatives multiply.
MOST_RULES = 20_000
_GAP = r"gap ::= [ \t\n]{0,3}"
_BASE = {
    "string": r'"\"" char* "\""',
    "char": r'[^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])',
    "integer": r'"-"? ("0" | [1-9] [0-9]{0,17})',
    "number": r'integer ("." [0-9]{1,17})? ([eE] [-+]? [0-9]{1,3})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "string | number | boolean | null | object | array",
    "object": '"{" gap (string gap ":" gap value (gap "," gap string gap ":" gap value)*)? gap "}"',
    "array": '"[" gap (value (gap "," gap value)*)? gap "]"',
}
#: What says nothing about the shape, or is left to the model.
_NOTES = frozenset(
    {"description", "title", "default", "examples", "format", "$schema", "$id", "$defs", "definitions", "deprecated"}
)
_KNOWN = _NOTES | frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems", "enum", "const"}
    | {"anyOf", "oneOf", "$ref", "minLength", "maxLength"}
)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Endless(ValueError):
    """A schema that no grammar can say, and that is not to be left to the engine's own reading either."""


def schema_grammar(schema: str) -> str:
    """EBNF whose root is one JSON value of the schema. Raises ValueError, or its child Endless."""
    try:
        return _Grammar(loads_json(schema)).text()
    except RecursionError as error:  # a chain of references, each to the next
        raise Endless(TOO_DEEP) from error


class _Grammar:
    """The rules of one schema. Names are numbered, so that no schema can choose one."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._rules: dict[str, str] = {}
        self._references: dict[str, str] = {}
        self._followed: frozenset[str] = frozenset()  # references since the last bracket: none may come again

    def text(self) -> str:
        root = self._rule(self._schema)
        rules = {"root": root, **_BASE, **self._rules}
        return "\n".join([*(f"{name} ::= {body}" for name, body in rules.items()), _GAP]) + "\n"

    def _named(self, body: str) -> str:
        if len(self._rules) >= MOST_RULES:
            raise Endless(f"a schema of more than {MOST_RULES} rules")
        name = f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def _rule(self, schema: Any) -> str:
        """The name of the rule of a schema."""
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict) or not schema.keys() <= _KNOWN:
            raise ValueError("a schema that a grammar cannot say")
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema:
            return self._named(_literal(json.dumps(schema["const"], ensure_ascii=False)))
        if "enum" in schema:
            return self._union([_literal(json.dumps(one, ensure_ascii=False)) for one in schema["enum"]])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._union([self._rule(one) for one in schema[key]])
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            return self._union([self._rule({**schema, "type": one}) for one in dict.fromkeys(map(str, kind))])
        return self._typed(kind, schema)

    def _union(self, choices: list[str]) -> str:
        if not choices:
            raise ValueError("nothing to choose from")
        return self._named(" | ".join(choices))

    def _typed(self, kind: Any, schema: dict[str, Any]) -> str:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string" and ("minLength" in schema or "maxLength" in schema):
            return self._named(f'"\\"" char{_times(schema.get("minLength", 0), schema.get("maxLength"))} "\\""')
        if kind in ("string", "integer", "number", "boolean", "null"):
            return str(kind)
        raise ValueError(f"type {kind}")

    def _reference(self, path: Any) -> str:
        """A definition of this schema; one that contains itself is named before it is written."""
        if not isinstance(path, str) or not path.startswith("#"):
            raise ValueError(f"reference {path}")
        if path in self._followed:
            raise Endless(f"reference {path} to itself")
        if path not in self._references:
            target = self._schema
            for step in path.split("/")[1:]:
                if not isinstance(target, dict) or step not in target:
                    raise ValueError(f"reference {path}")
                target = target[step]
            self._references[path] = name = self._named("")
            before, self._followed = self._followed, self._followed | {path}
            self._rules[name] = self._rule(target)
            self._followed = before
        return self._references[path]

    def _inner(self, schema: Any) -> str:
        """The rule of what stands behind a bracket: there a definition may come again."""
        before, self._followed = self._followed, frozenset()
        name = self._rule(schema)
        self._followed = before
        return name

    def _array(self, schema: dict[str, Any]) -> str:
        item = self._inner(schema.get("items", True))
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return self._named('"[" gap "]"')
        more = _times(max(least - 1, 0), None if most is None else most - 1)
        body = f'{item} (gap "," gap {item}){more}'
        return self._named(f'"[" gap {body if least else f"({body})?"} gap "]"')

    def _object(self, schema: dict[str, Any]) -> str:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict) or (schema.get("additionalProperties") not in (None, False, True)):
            raise ValueError("members of a schema of their own")
        if not properties:
            return self._named('"{" gap "}"') if schema.get("additionalProperties") is False else "object"
        required = set(schema.get("required", ()))
        if not required <= properties.keys():
            raise ValueError("a member is required that is not described")
        written = begun = '""'
        for name, inner in reversed(properties.items()):
            member = f'{_literal(json.dumps(name, ensure_ascii=False))} gap ":" gap {self._inner(inner)}'
            more, first = f'gap "," gap {member} {written}', f"{member} {written}"
            if name not in required:
                more, first = f"{more} | {written}", f"{first} | {begun}"
            written, begun = self._named(more), self._named(first)
        return self._named(f'"{{" gap {begun} gap "}}"')


def _times(least: Any, most: Any) -> str:
    if not isinstance(least, int) or not isinstance(most, int | None) or (most is not None and most < least):
        raise ValueError("a count")
    return f"{{{least},{'' if most is None else most}}}"


def _literal(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'
