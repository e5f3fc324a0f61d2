"""How a model marks its reasoning and its tool calls: a value, found by `modeld.template.sniff`."""

from __future__ import annotations

from typing import Literal

import msgspec

ReasoningKind = Literal["none", "tags", "channels"]

#: Families of tool-call notation; each is one entry of `modeld.output.calls.STYLES`.
ToolStyle = Literal[
    "generic",
    "hermes",
    "qwen_xml",
    "llama3",
    "mistral",
    "gemma",
    "function_gemma",
    "gpt_oss",
    "deepseek",
    "deepseek_dsml",
    "kimi",
    "glm",
    "minimax",
    "seed",
    "command",
    "nemotron",
    "granite",
    "apertus",
    "tool_calls_list",
    "functools",
    "function_tags",
    "gigachat",
    "action",
    "functionary_tags",
    "functionary_recipient",
    "lfm2",
    "solar",
]


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
