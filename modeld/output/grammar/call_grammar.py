"""What a tool call must be once it has begun, for engines that can hold a model to a grammar. Pure.

The parser tells when a call begins (`Opened`); only then does the grammar apply, so an answer in words is
free and costs nothing. Two ways: a whole section, where a family writes its calls as JSON between marks
(the tool's name is then one of the turn's), else the arguments alone, wherever JSON arguments begin.
Notations of tags need neither: there the parser itself writes the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from modeld.output.calls import STYLES, style_of
from modeld.output.calls.style import JsonCalls
from modeld.output.format import OutputFormat
from modeld.output.grammar.schema_bounds import MOST_SCHEMA, countable
from modeld.output.grammar.values import Begin, CallForm, Forced, Lead, Section, ToolGrammar
from shared.catalog.template_detection import ToolStyle

#: White space that may stand between two parts: a bound, so that a small model cannot write it for ever.
GAP = 20
SPACE = " \t\n\r"
ANY_OBJECT = '{"type": "object"}'


def tool_grammar(form: OutputFormat, tools: Sequence[dict[str, Any]]) -> ToolGrammar | None:
    """The grammar of a turn's tools in the family's notation; None without tools."""
    schemas = {name: schema for name, schema in map(_schema, tools) if name}
    if not schemas:
        return None
    taken = _openers_of_tags(form.tools)
    families = [_json_of(style) for style in dict.fromkeys((form.tools, "generic"))]
    sections = [_section(family, schemas) for family in families if family is not None]
    kept = {section.opener: section for section in reversed(sections) if section.opener not in taken}
    return ToolGrammar(sections=tuple(kept.values()), schemas=schemas)


def must_call(grammar: ToolGrammar, form: OutputFormat, lead: Lead | None) -> ToolGrammar | None:
    """The same calls, one of them at once; None where nothing tells how this model begins one.

    `lead`: what the model's own template writes around a tool's name.
    """
    before = f"{form.think_close[0]}\n\n" if form.opened else ""
    section = _section_of(grammar, form, lead)
    if section is not None:
        gap = "" if lead is None or form.described else lead.before[: len(lead.before) - len(lead.before.lstrip())]
        return msgspec.structs.replace(grammar, forced=Forced(before + gap, section))
    if lead is None:
        return None
    begins = tuple(Begin(name, f"{lead.before}{name}{lead.after}", lead.json) for name in grammar.schemas)
    return msgspec.structs.replace(grammar, forced=Forced(before, begins=begins))


def _section_of(grammar: ToolGrammar, form: OutputFormat, lead: Lead | None) -> Section | None:
    """The section that a call begins with: ours where we taught it, else the family's, if its template writes that."""
    family = _json_of("generic" if form.described else form.tools)
    if form.described or lead is None:
        taught = form.described or form.tools != "generic"
        wanted = family.opener if taught and family is not None else ""
    else:
        wanted = lead.before.lstrip()
    return next((one for one in grammar.sections if wanted.startswith(one.opener)), None)


def any_arguments(grammar: ToolGrammar) -> ToolGrammar:
    """The same calls with any object for arguments: for schemas that an engine cannot express."""
    return msgspec.structs.replace(grammar, schemas=dict.fromkeys(grammar.schemas, ANY_OBJECT))


def _json_of(style: ToolStyle) -> JsonCalls | None:
    known = STYLES.get(style)
    return known.json if known is not None else None


def _openers_of_tags(style: ToolStyle) -> tuple[str, ...]:
    """A family that writes no JSON behind `<tool_call>` is not to be held to any."""
    return () if _json_of(style) else style_of(style).openers


def _schema(tool: dict[str, Any]) -> tuple[str, str]:
    function = tool.get("function", tool)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return "", ""
    parameters = function.get("parameters")
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        return function["name"], ANY_OBJECT
    if not isinstance(parameters.get("properties", {}), dict):
        return function["name"], ANY_OBJECT
    text = json.dumps({**countable(parameters), "type": "object"}, ensure_ascii=False)
    return function["name"], text if len(text) <= MOST_SCHEMA else ANY_OBJECT


def _section(family: JsonCalls, schemas: dict[str, str]) -> Section:
    """The calls of one family. Those that name a tool before a mark wrote arrays in older models: each its own way."""
    before, after = ("[",) if family.named_by else (), ("]",) if family.named_by else ()
    marked = [CallForm(name, (f"{name}{family.named_by}",), ()) for name in schemas if family.named_by]
    calls = [
        CallForm(
            name,
            (*before, "{", '"name"', ":", json.dumps(name), ",", f'"{family.key}"', ":"),
            ("}", *after),
        )
        for name in schemas
    ]
    return Section(family.opener, family.closer, family.gap, family.listed, (*marked, *calls))


def canonical(parts: Sequence[str]) -> str:
    """The parts as JSON is usually written: a space behind commas and colons."""
    return "".join(part + " " if part in (",", ":") else part for part in parts)


def may_follow(section: Section, written: str) -> bool:
    """Whether what a model wrote behind the opener is the begin of a call, and ends before its arguments."""
    lead = ("[",) if section.listed else ()
    return any(_prefix((*lead, *call.begin), written) for call in section.calls)


def may_begin(schema: str, written: str) -> bool:
    """The same for a tool's arguments: nothing, the brace, or a quote where members are allowed."""
    text = written.strip(SPACE)
    if len(written) > GAP or text not in ("", "{", '{"'):
        return False
    parsed = json.loads(schema)
    return text != '{"' or bool(parsed.get("properties")) or "properties" not in parsed


def _prefix(parts: Sequence[str], text: str) -> bool:
    at = 0
    for part in parts:
        space = at
        while at < len(text) and text[at] in SPACE and at - space < GAP:
            at += 1
        if at == len(text):
            return True
        if not text.startswith(part[: len(text) - at], at):
            return False
        at += len(part)
        if at >= len(text):
            return True
    return False
