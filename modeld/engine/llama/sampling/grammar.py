"""GBNF for what a turn must write: JSON schemas whole, tool calls from where one has begun."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from modeld.output.grammar.call_grammar import ANY_OBJECT, GAP
from modeld.output.grammar.values import CallForm, Forced, Section, ToolGrammar

_GAP_RULE = rf"gap ::= [ \t\n\r]{{0,{GAP}}}"
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CONVERSION_FAULTS = (ValueError, KeyError, TypeError, AssertionError, AttributeError, IndexError, RecursionError)


def schema_gbnf(schema: str) -> str:
    """The grammar of a whole answer. Raises ValueError with the reason."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text: str = json_schema_to_gbnf(schema)
    except _CONVERSION_FAULTS as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return text


def section_gbnf(section: Section, schemas: dict[str, str], before: str) -> str:
    """A section whose opener was just written. `before`: the text of the tokens that opener ends, itself included."""
    names = {name: f"t{number}" for number, name in enumerate(schemas)}
    used = {call.tool for call in section.calls}
    rules = [_GAP_RULE, *_arguments({name: schemas[name] for name in schemas if name in used}, names)]
    rules.append(f"call ::= {' | '.join(_call(call, names[call.tool]) for call in section.calls)}")
    closer = f" gap {literal(section.closer)}" if section.closer else ""
    if section.listed:
        body = f'gap "[" gap call (gap "," gap call)* gap "]"{closer}'
    else:
        body = f"gap call{closer} (gap {literal(section.opener)} gap call{closer})*"
    return "\n".join([f"root ::= {literal(before)} {body}", *rules])


def arguments_gbnf(grammar: ToolGrammar, tool: str, before: str) -> str:
    """The arguments of one tool, which come next; behind them everything is free again."""
    schemas = {tool: grammar.schemas.get(tool, ANY_OBJECT)}
    rules = _arguments(schemas, {tool: "t0"})
    lead = f"{literal(before)} " if before else ""
    return "\n".join([f"root ::= {lead}gap t0 .*", _GAP_RULE, *rules])


def forced_gbnf(grammar: ToolGrammar, forced: Forced) -> str:
    """An answer that is a call from its first token."""
    if forced.section is not None:
        return section_gbnf(forced.section, grammar.schemas, forced.before + forced.section.opener)
    names = {name: f"t{number}" for number, name in enumerate(grammar.schemas)}
    begins = [literal(one.text) + (f" gap {names[one.tool]}" if one.json else "") for one in forced.begins]
    held = {one.tool: grammar.schemas[one.tool] for one in forced.begins if one.json}
    lead = f"{literal(forced.before)} " if forced.before else ""
    return "\n".join([f"root ::= {lead}({' | '.join(begins)}) .*", _GAP_RULE, *_arguments(held, names)])


def literal(text: str) -> str:
    """A GBNF string."""
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'


def _call(call: CallForm, arguments: str) -> str:
    begin = " gap ".join(map(literal, call.begin))
    end = "".join(f" gap {literal(part)}" for part in call.end)
    return f"{begin} gap {arguments}{end}"


def _arguments(schemas: dict[str, str], names: dict[str, str]) -> list[str]:
    """The rules of each tool's arguments; a schema that cannot be expressed allows any object."""
    rules: dict[str, str] = {}
    for tool, schema in schemas.items():
        try:
            rules.update(_converted(schema, names[tool]))
        except _CONVERSION_FAULTS:
            rules.update(_converted(ANY_OBJECT, names[tool]))
    return [f"{name} ::= {rule}" for name, rule in rules.items()]


def _converted(schema: str, name: str) -> dict[str, str]:
    from llama_cpp.llama_grammar import SchemaConverter

    parsed = _local(json.loads(schema), name)
    converter = SchemaConverter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    parsed = converter.resolve_refs(parsed, name)
    made = converter.visit(parsed, name)
    rules: dict[str, str] = dict(converter._rules)  # noqa: SLF001 - the class offers one text with its own root
    if made != name:
        rules[name] = made
    return rules


_SHELVES = ("$defs", "definitions")


def _local(schema: Any, name: str) -> Any:
    """The converter names a rule by the last word of a reference: made the tool's own here.

    Raises ValueError for a reference to anything but a definition of this schema.
    """
    if isinstance(schema, list):
        return [_local(one, name) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            made[key] = {one: _local(inner, name) for one, inner in value.items()}  # names of members, not words
        elif key == "$ref":
            made[key] = _renamed(value, name)
        elif key in _SHELVES and isinstance(value, dict):
            made[key] = {f"{name}-{one}": _local(inner, name) for one, inner in value.items()}
        else:
            made[key] = _local(value, name)
    return made


def _renamed(reference: Any, name: str) -> str:
    parts: Sequence[str] = reference.split("/") if isinstance(reference, str) else ()
    if len(parts) != 3 or parts[0] != "#" or parts[1] not in _SHELVES:
        raise ValueError(f"reference {reference}")
    return f"#/{parts[1]}/{name}-{parts[2]}"
