"""Families of tool-call notation, one table."""

from __future__ import annotations

from modeld.output.calls.section import json_section
from modeld.output.calls.style import Style
from modeld.output.format import ToolStyle

_HERMES = Style(("<tool_call>",), json_section("</tool_call>"), ("</tool_call>",))

STYLES: dict[ToolStyle, Style] = {
    "generic": _HERMES._replace(bare=True),
    "hermes": _HERMES,
    "llama3": Style(("<|python_tag|>",), json_section("<|eom_id|>"), bare=True),
}


def style_of(name: ToolStyle) -> Style:
    """The notation of a family; that of our own instructions where it has none."""
    return STYLES.get(name, STYLES["generic"])
