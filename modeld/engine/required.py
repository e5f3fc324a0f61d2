"""Raises where an engine is asked before it has loaded what the call needs."""

from __future__ import annotations

from typing import TypeVar

from shared.errors import EngineFailed

T = TypeVar("T")


def required(value: T | None) -> T:
    """The value, which is set once a model is loaded. Raises EngineFailed where it is None."""
    if value is None:
        raise EngineFailed(reason="no model is loaded")
    return value
