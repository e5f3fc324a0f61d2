"""The tools of one turn, as the grammars need them: names, and which parameters are text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ToolBook:
    """Looks up the turn's tools. Entries may be `{type, function: {...}}` or the function itself."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self._parameters: dict[str, dict[str, Any]] = {}
        for tool in tools:
            function = tool.get("function", tool)
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                self._parameters[function["name"]] = _properties(function.get("parameters"))

    def __bool__(self) -> bool:
        return bool(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def wants_text(self, name: str, parameter: str) -> bool:
        """Whether a parameter is a string; also when nothing is known of it."""
        schema = self._parameters.get(name, {}).get(parameter)
        if not isinstance(schema, dict):
            return True
        kinds = _kinds(schema)
        return not kinds or "string" in kinds


def _properties(parameters: Any) -> dict[str, Any]:
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The JSON types a schema allows, its alternatives included."""
    kinds: set[str] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        kind = one.get("type")
        kinds |= {kind} if isinstance(kind, str) else {name for name in _list(kind) if isinstance(name, str)}
        for key in ("anyOf", "oneOf"):
            waiting += [choice for choice in _list(one.get(key)) if isinstance(choice, dict)]
    return kinds


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
