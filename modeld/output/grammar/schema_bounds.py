"""What a grammar can count to: schemas come from clients and MCP servers, and a grammar writes a count out. Pure.

A string of at most a billion characters is a grammar of gigabytes. What is asked for by itself (`json_schema`) is
refused by its name; the schema of a tool loses the bound, which its server checks anyway.
"""

from __future__ import annotations

import re
from typing import Any

MOST_COUNT = 2000
#: Bounds of numbers are written out digit by digit.
MOST_NUMBER = 10**15
MOST_PATTERN = 1000
#: Characters of one tool's schema; more than that fills most windows by itself.
MOST_SCHEMA = 64 * 1024

_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
#: Words below which names of members stand, not words of the schema.
_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
#: Words whose values are data.
_DATA = frozenset({"enum", "const", "default", "examples"})
_DIGITS = re.compile(r"\d+")


def countable(schema: Any) -> Any:
    """The schema without the bounds that no grammar can count to; no deeper than `shared.text.nesting` allows."""
    if isinstance(schema, list):
        return [countable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for word, value in schema.items():
        if word in _DATA:
            kept[word] = value
        elif word in _NAMES and isinstance(value, dict):
            kept[word] = {name: countable(one) for name, one in value.items()}
        elif not _beyond(word, value):
            kept[word] = countable(value)
    return kept


def _beyond(word: str, value: Any) -> bool:
    if isinstance(value, str):
        return word == "pattern" and (len(value) > MOST_PATTERN or _counts_too_far(value))
    if not isinstance(value, (int, float)):
        return False
    return (word in _COUNTS and not 0 <= value <= MOST_COUNT) or (word in _NUMBERS and not abs(value) <= MOST_NUMBER)


def _counts_too_far(pattern: str) -> bool:
    return any(len(digits) > 4 or int(digits) > MOST_COUNT for digits in _DIGITS.findall(pattern))
