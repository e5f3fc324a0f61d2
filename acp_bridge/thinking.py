"""The thinking levels a model has: an option of the turn, never a reason to reload. Pure."""

from __future__ import annotations

from shared.protocol.api import LibraryRow

THINKING = "thought_level"
LEVELS = ("default", "off", "low", "medium", "high")
NAMES = {"default": "Default", "off": "Off", "low": "Low", "medium": "Medium", "high": "High"}


def thinking_levels(row: LibraryRow | None) -> list[str]:
    """What may be set for the model of this row; empty when it does not think."""
    return list(LEVELS) if row is not None and row.thinking else []
