"""A model's recommended sampling settings, as its files say them. Pure.

GGUF has keys of its own for it; an OpenVINO folder keeps the `generation_config.json` of the original.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Our name, the key's end in a GGUF header, the key in a generation config, and the range that makes sense.
_KNOWN = (
    ("temperature", "temp", "temperature", 0.0, 5.0),
    ("top_k", "top_k", "top_k", 0.0, 1e6),
    ("top_p", "top_p", "top_p", 0.0, 1.0),
    ("min_p", "min_p", "min_p", 0.0, 1.0),
    ("repeat_penalty", "penalty_repeat", "repetition_penalty", 0.5, 3.0),
)


def from_gguf(metadata: Mapping[str, Any]) -> dict[str, float]:
    """What stands under `general.sampling`."""
    return _kept({name: metadata.get(f"general.sampling.{key}") for name, key, *_ in _KNOWN})


def from_generation_config(config: Mapping[str, Any]) -> dict[str, float]:
    """What is there besides `do_sample`: without that the numbers are left-overs that their makers do not use."""
    if config.get("do_sample") is not True:
        return {}
    return _kept({name: config.get(key) for name, _, key, *_ in _KNOWN})


def _kept(values: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, _, _, least, most in _KNOWN:
        value = values[name]
        plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if plain and least <= value <= most:
            found[name] = float(value)
    return found
