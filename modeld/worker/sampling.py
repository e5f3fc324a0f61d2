"""Merges requested, recommended and default sampling settings into the engine's decode options. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from modeld.engine.contract import Capabilities, DecodeOptions
from modeld.output.grammar.schema_bounds import MOST_COUNT, countable
from modeld.output.grammar.values import ToolGrammar
from shared.errors import UnsupportedFeature
from shared.protocol.api import Sampling

#: Where neither the turn nor the model's makers say anything: llama.cpp's own defaults, but for the temperature. What
#: is asked in an editor has right answers, and at the usual 0.8 small models miss many that they know: of plain
#: questions to the starter 14 in 20 were answered right at 0.8 and 20 at 0.2.
DEFAULTS = Sampling(temperature=0.2, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.0)
#: Models that think are made for more: below this their makers see them go round in circles.
THINKING_TEMPERATURE = 0.6


def advice_for(facts: Mapping[str, Any]) -> Sampling:
    """What is right for a model: what its makers say in its files, as the catalog read them, then its kind."""
    defaults: dict[str, Any] = {"temperature": THINKING_TEMPERATURE} if facts.get("thinking") else {}
    defaults |= facts.get("sampling") or {}
    known = {name: defaults[name] for name in _FIELDS if name in defaults}
    if "top_k" in known:
        known["top_k"] = int(known["top_k"])
    return Sampling(**known)


def decode_options(
    asked: Sampling, recommended: Sampling, capabilities: Capabilities, budget: int, tools: ToolGrammar | None = None
) -> DecodeOptions:
    """`asked` goes before `recommended` (the model's files), that before the defaults.

    `budget`: tokens the window still holds. `tools` holds the calls to their schemas.
    Raises UnsupportedFeature for what cannot be done.
    """
    _refuse_unsupported(asked, capabilities)
    if must_use_tools(asked) and (not capabilities.grammar or tools is None or tools.forced is None):
        raise UnsupportedFeature(feature=f"tool_choice {asked.tool_choice!r}")
    merged = {name: _first(name, asked, recommended, DEFAULTS) for name in _FIELDS}
    values: dict[str, Any] = {name: value for name, value in merged.items() if value is not None}
    limit = budget if asked.max_tokens is None else min(asked.max_tokens, budget)
    schema = None if asked.json_schema is None else _schema(asked.json_schema)
    bias = tuple(sorted((_token(key), value) for key, value in asked.logit_bias.items()))
    held = tools if capabilities.grammar and schema is None else None
    return DecodeOptions(max_tokens=limit, logit_bias=bias, json_schema=schema, seed=asked.seed, tools=held, **values)


def _schema(asked: dict[str, Any]) -> str:
    """As text. Raises UnsupportedFeature where a grammar would have to count too far."""
    if countable(asked) != asked:
        raise UnsupportedFeature(feature=f"this json_schema (a grammar counts to {MOST_COUNT})")
    return json.dumps(asked)


_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")


def _first(name: str, *layers: Sampling) -> float | int | None:
    for layer in layers:
        value: float | int | None = getattr(layer, name)
        if value is not None:
            return value
    return None


def _token(key: str) -> int:
    try:
        return int(key)
    except ValueError as error:
        raise UnsupportedFeature(feature=f"logit_bias key {key!r} (token ids only)") from error


def _refuse_unsupported(asked: Sampling, capabilities: Capabilities) -> None:
    if asked.json_schema is not None and not capabilities.grammar:
        raise UnsupportedFeature(feature="json_schema")
    if asked.json_schema is not None and must_use_tools(asked):
        raise UnsupportedFeature(feature="json_schema with a tool_choice that asks for a call")
    if asked.max_tokens is not None and asked.max_tokens < 1:
        raise UnsupportedFeature(feature="max_tokens below 1")


def must_use_tools(asked: Sampling) -> bool:
    """Whether the answer has to be a tool call: `required`, or the name of a tool."""
    return asked.tool_choice not in (None, "auto", "none")


def offered(asked: Sampling, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools that this answer may call: all, none, or the one that is named. Raises UnsupportedFeature."""
    if asked.tool_choice == "none":
        return []
    if not must_use_tools(asked):
        return tools
    chosen = [one for one in tools if asked.tool_choice in ("required", one.get("function", one).get("name"))]
    if not chosen:
        what = "without tools" if not tools else "which names none of the tools"
        raise UnsupportedFeature(feature=f"tool_choice {asked.tool_choice!r}, {what}")
    return chosen


def describe_capabilities(capabilities: Capabilities) -> dict[str, object]:
    """As plain values, for status and describe."""
    plain: dict[str, object] = msgspec.to_builtins(capabilities)
    return plain
