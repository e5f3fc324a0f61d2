"""Tokenizer graphs carry a largest length at which they cut a text without a word: it is lifted here.

The engine's own converter writes 8,192 into every tokenizer it makes. The limit is a constant that
feeds a `Minimum`; its bytes lie in the `.bin` at the offset that the `.xml` names.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

_MOST = 2**31 - 1
_TYPES = {"i32": 4, "i64": 8}


def lift_limit(folder: Path) -> list[int]:
    """Lift the limits of `openvino_tokenizer` in a folder of ours; what they were. Raises OSError, ParseError."""
    limits = find_limits(folder)
    with (folder / "openvino_tokenizer.bin").open("r+b") as weights:
        for offset, size, _ in limits:
            weights.seek(offset)
            weights.write(_MOST.to_bytes(size, "little"))
    return [value for _, _, value in limits]


def find_limits(folder: Path) -> list[tuple[int, int, int]]:
    """(offset, bytes, value) of every constant that limits the length of a text, in tokens."""
    root = ET.parse(folder / "openvino_tokenizer.xml").getroot()  # noqa: S314 - written by the engine itself
    layers = {layer.get("id"): layer for layer in root.iter("layer")}
    data = (folder / "openvino_tokenizer.bin").read_bytes()
    limits = []
    for edge in root.iter("edge"):
        source, target = layers.get(edge.get("from-layer")), layers.get(edge.get("to-layer"))
        if source is None or target is None or source.get("type") != "Const" or target.get("type") != "Minimum":
            continue
        where = source.find("data")
        size = _TYPES.get(where.get("element_type", "")) if where is not None else None
        if where is None or size is None or int(where.get("size", "0")) != size:
            continue
        offset = int(where.get("offset", "0"))
        value = int.from_bytes(data[offset : offset + size], "little", signed=True)
        if 0 < value < _MOST:
            limits.append((offset, size, value))
    return limits
