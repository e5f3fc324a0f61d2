"""How a model marks its reasoning and its tool calls: a value, made by `modeld.template.output_format`. Pure."""

from __future__ import annotations

import msgspec

from shared.catalog.template_detection import ReasoningKind, ToolStyle


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of one model's output.

    `opened`: the prompt itself ended inside the reasoning (its opener is in the generation prompt).
    `begun`: it ended inside the begin of a message that may be a call. `described`: the tools stand in the
    system message in our own words (`generic` notation). `noise`: literals that frame an answer and are
    never shown.
    """

    reasoning: ReasoningKind = "none"
    think_open: tuple[str, ...] = ("<think>",)
    think_close: tuple[str, ...] = ("</think>",)
    opened: bool = False
    begun: bool = False
    described: bool = False
    tools: ToolStyle = "generic"
    noise: tuple[str, ...] = ()
