"""One configured value: read as its setting's kind, or why it cannot be, in people's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

#: What a size may be written with.
_UNITS = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 1024,
    "mi": 1024**2,
    "gi": 1024**3,
    "ti": 1024**4,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def is_size(name: str) -> bool:
    """Whether a setting of this name is in bytes."""
    return name.endswith(("_bytes", "_floor")) or name == "message_limit"


def converted(name: str, value: Any, kind: Any) -> Any:
    """The value as `kind`. Raises ValueError with what it must be."""
    if is_size(name) and isinstance(value, str) and (size := _SIZE.fullmatch(value)) is not None:
        value = int(float(size[1]) * _UNITS[(size[2] or "").lower()])
    if kind is bool and not isinstance(value, bool) and str(value).lower() not in ("true", "false", "0", "1"):
        raise ValueError(must_be(name, kind))
    if kind in (int, float) and isinstance(value, bool):
        raise ValueError(must_be(name, kind))
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise ValueError(must_be(name, kind)) from None


def must_be(name: str, kind: Any) -> str:
    """What a value of this setting is, as the end of a sentence that begins with its name."""
    if is_size(name):
        return 'must be a whole number of bytes, or a size such as "10 GiB"'
    unit = " of seconds" if kind is float and _in_seconds(name) else ""
    return f"must be {_KINDS.get(kind, 'a list of texts')}{unit}"


def _in_seconds(name: str) -> bool:
    return not name.endswith(("_fraction", "_cap", "_factor", "_days"))


def toml_fault(error: Exception) -> str:
    """Why a file cannot be read as TOML: its place where that is known."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not valid UTF-8 (byte {error.start:,})"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    text = str(error)
    place = re.fullmatch(r"(.*) \(at (line \d+, column \d+|end of document)\)", text, re.DOTALL)
    return f"{place[2]}: {place[1][:1].lower()}{place[1][1:]}" if place is not None else text


def table_fault(name: str, names: Mapping[str, Any]) -> str:
    """Why a table of the file means nothing."""
    if name in names:
        return f"it is a table; write `{name} = ...` above the first table"
    return "there is no such table; settings stand above the first table, remote models in [providers.NAME]"
