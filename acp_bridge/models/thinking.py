"""The thinking levels a model has: an option of the turn, never a reason to reload. Pure."""

from __future__ import annotations

from acp_bridge.models.picker import RemoteModel
from shared.errors import UnsupportedFeature
from shared.protocol.api import LibraryRow

THINKING = "thought_level"
LEVELS = ("default", "off", "low", "medium", "high")
NAMES = {"default": "Default", "off": "Off", "low": "Low", "medium": "Medium", "high": "High"}


def thinking_levels(row: LibraryRow | RemoteModel | None) -> list[str]:
    """What may be set for this model; empty when it does not think, or cannot be told."""
    return list(LEVELS) if row is not None and row.thinking else []


def level_of(row: LibraryRow | RemoteModel | None, level: str | None, model: str) -> str | None:
    """The level to send to `model`, None for its own default. Raises UnsupportedFeature for one that it lacks."""
    if level in (None, "", LEVELS[0]):
        return None
    if level in thinking_levels(row):
        return level
    has = ", ".join(thinking_levels(row)) or "none"
    raise UnsupportedFeature(
        f"{model} has no thinking level {level!r} (it has: {has})", feature=f"thinking level {level!r}"
    )
