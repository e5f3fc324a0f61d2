"""Tools that a template cannot express as they are: first filled in, then simplified. Pure.

JSON Schema allows much that templates do not look for (no description, no parameters, `$ref`, `anyOf`, lists of types).
What a simpler schema cannot say stands in its description, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

Tool = dict[str, Any]
#: Schemas within schemas that are looked into; what lies deeper is any object.
_DEEPEST = 8
_TYPES = ("string", "number", "integer", "boolean", "array", "object")
_CHOICES = ("anyOf", "oneOf", "allOf")
_KEPT = ("enum", "default")


def as_told(tool: Tool) -> Tool:
    """The tool itself."""
    return tool


def filled(tool: Tool) -> Tool:
    """With a description and a type wherever templates look for one; nothing else changes."""
    return _with(tool, _filled)


def simplified(tool: Tool) -> Tool:
    """With schemas of one type each: references followed, the first of several choices taken and the rest described."""
    return _with(tool, _simplified)


#: Prompts that are made to find out which tools a template shows: milliseconds each. Those not found out by then are
#: described in words.
MOST_TRIES = 96
#: In the order in which they are tried.
LEVELS: tuple[Callable[[Tool], Tool], ...] = (as_told, filled, simplified)


def name_of(tool: Tool) -> str:
    """What the tool is called."""
    return str(tool.get("function", tool).get("name", ""))


def expressed(
    tools: Sequence[Tool], shows: Callable[[Sequence[Tool]], bool]
) -> tuple[list[Tool], list[Tool], tuple[str, ...]]:
    """The tools in a form that a template shows, those that it shows in none, and the names of all that changed.

    `shows`: whether a prompt with these tools comes out and names them.
    """
    tries = 0

    def sort_out(some: Sequence[Tool]) -> tuple[list[Tool], list[Tool]]:
        """By halves, so that a few bad ones among many cost a few tries."""
        nonlocal tries
        for level in LEVELS:
            tries += 1
            whole = [level(tool) for tool in some]
            if tries <= MOST_TRIES and shows(whole):
                return whole, []
        if len(some) == 1 or tries > MOST_TRIES:
            return [], list(some)
        half = len(some) // 2
        (first, bad), (second, worse) = sort_out(some[:half]), sort_out(some[half:])
        return [*first, *second], [*bad, *worse]

    kept, left = sort_out(tools)
    if left and kept and not shows(kept):
        kept, left = [], list(tools)
    return kept, left, _changed(tools, kept)


def _changed(tools: Sequence[Tool], now: Sequence[Tool]) -> tuple[str, ...]:
    same = {name_of(tool) for tool in now if any(tool is one for one in tools)}
    return tuple(name for name in map(name_of, tools) if name not in same)


def _with(tool: Tool, change: Callable[[Any, Any, int], dict[str, Any]]) -> Tool:
    function = tool.get("function", tool)
    parameters = function.get("parameters")
    whole = parameters if isinstance(parameters, dict) else {}
    schema = change({**whole, "type": "object"}, whole, 0)
    schema = {**schema, "type": "object", "properties": schema.get("properties") or {}}
    if "required" not in schema:
        schema["required"] = []
    told = {
        **function,
        "description": str(function.get("description") or function.get("name", "")),
        "parameters": {key: value for key, value in schema.items() if key != "description" or value},
    }
    return {**tool, "function": told} if "function" in tool else {"type": "function", "function": told}


def _filled(schema: Any, root: Any, depth: int) -> dict[str, Any]:
    told = dict(schema) if isinstance(schema, dict) else {}
    if depth:
        told["description"] = str(told.get("description") or told.get("title") or "")
        if not any(key in told for key in ("type", "$ref", *_CHOICES)):
            told["type"] = _type_of(told)
    if not isinstance(told.get("required", []), list):
        told.pop("required")
    properties = told.get("properties")
    if "properties" in told:
        given = properties if isinstance(properties, dict) and depth < _DEEPEST else {}
        told["properties"] = {name: _filled(one, root, depth + 1) for name, one in given.items()}
    return told


def _simplified(schema: Any, root: Any, depth: int, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    told = dict(schema) if isinstance(schema, dict) else {}
    reference = told.get("$ref")
    if isinstance(reference, str):
        target = None if reference in seen else _target(reference, root)
        told = {**(target if isinstance(target, dict) else {}), **{k: v for k, v in told.items() if k != "$ref"}}
        seen = (*seen, reference)
    description = str(told.get("description") or told.get("title") or "")
    for key in _CHOICES:
        choices = [one for one in told.get(key) or () if isinstance(one, dict) and one.get("type") != "null"]
        if not choices:
            continue
        if len(choices) > 1:
            description = f"{description} ({key}: {json.dumps(choices, ensure_ascii=False)})".strip()
        first = _simplified(choices[0], root, depth + 1, seen) if depth < _DEEPEST else {}
        told = {**first, **{k: v for k, v in told.items() if k not in _CHOICES}}
        description = description or str(first.get("description", ""))
    kind = _type_of(told)
    simple: dict[str, Any] = {"type": kind, "description": description}
    simple |= {key: told[key] for key in _KEPT if key in told}
    if kind == "array":
        items = told.get("items", {"type": "string"})
        simple["items"] = _simplified(items, root, depth + 1, seen) if depth < _DEEPEST else {"type": "string"}
    if kind == "object":
        given = told.get("properties") if depth < _DEEPEST else None
        names = given if isinstance(given, dict) else {}
        simple["properties"] = {name: _simplified(one, root, depth + 1, seen) for name, one in names.items()}
        required = told.get("required")
        simple["required"] = [one for one in required if one in names] if isinstance(required, list) else []
    return simple


def _target(reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        return None
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) and part else found
    return None if found is root else found


def _type_of(schema: dict[str, Any]) -> str:
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind in _TYPES:
            return str(kind)
    if "properties" in schema:
        return "object"
    values = [*(schema.get("enum") or ()), *([schema["const"]] if "const" in schema else ())]
    if values and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        return "number"
    return "string"
