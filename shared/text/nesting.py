"""How deeply a value from outside may nest, and JSON read within that bound. Pure.

Whoever walks a value does it by recursion: encoders, templates, grammars. So depth is judged once, where a value
comes in, and what is deeper is reported as a plain error there.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
#: Objects and arrays within each other. A schema of thirty nested objects needs 60 to 90; an interpreter's stack
#: carries several times as much.
DEEPEST = 100
_HOLDERS = (dict, list, tuple)
TOO_DEEP = f"it nests more than {DEEPEST} levels deep"


def too_deep(value: object, limit: int = DEEPEST) -> bool:
    """Whether objects and arrays stand in each other more than `limit` levels deep. Walks without recursion."""
    level: list[Any] = [value] if isinstance(value, _HOLDERS) else []
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, _HOLDERS)
        ]
        if not level:
            return False
    return bool(level)


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """As `msgspec.json.decode`, with a DecodeError also for what nests more than `DEEPEST` levels deep."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error
    if too_deep(value):
        raise msgspec.DecodeError(TOO_DEEP)
    return value


def loads_json(text: str) -> Any:
    """As `json.loads`, with a ValueError also for what nests more than `DEEPEST` levels deep."""
    import json

    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if too_deep(value):
        raise ValueError(TOO_DEEP)
    return value
