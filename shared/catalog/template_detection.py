"""What the text of a chat template tells about its model, without rendering it (pure; no Jinja).

One reading for the library's flags, for the picker, and for the worker, which chooses the output grammar by it. The
marks are those the model families write.
"""

from __future__ import annotations

import re
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
    "hunyuan",
    "minimax_m3",
    "kimi_k3",
    "muse",
]

#: The first whose mark stands in the template names the tool-call notation.
_TOOL_MARKS: tuple[tuple[str, ToolStyle], ...] = (
    ("<|channel|>", "gpt_oss"),
    ("｜DSML｜", "deepseek_dsml"),
    ("<seed:tool_call>", "seed"),
    ("<｜hy_", "hunyuan"),
    ("<atem:function_calls>", "muse"),
    ("]<]minimax[>[", "minimax_m3"),
    ("<|open|>", "kimi_k3"),
    ("<minimax:tool_call>", "minimax"),
    ("<invoke", "minimax"),
    ("<arg_key>", "glm"),
    ("<parameter=", "qwen_xml"),
    ("<|tool_call_begin|>", "kimi"),
    ("<｜tool▁call▁begin｜>", "deepseek"),
    ("<|tool_call:begin|>", "solar"),
    ("<|tool_call>call:", "gemma"),
    ("<|tool_call>", "gemma"),
    ("<start_function_call>", "function_gemma"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|START_ACTION|>", "command"),
    ("<TOOLCALL>", "nemotron"),
    ("<|tools_prefix|>", "apertus"),
    ("<|tool_call_start|>", "lfm2"),
    ("List of tools: <|tool_list_start|>", "lfm2"),
    (">>>", "functionary_recipient"),
    ("<function=", "functionary_tags"),
    ('<function name="', "function_tags"),
    ("<|function_call|>", "gigachat"),
    ("<|role_sep|>", "gigachat"),
    ("Action:", "action"),
    ("functools", "functools"),
    ("<tool_calls>", "tool_calls_list"),
    ("<tool_call>", "hermes"),
    ("<|tool_call|>", "granite"),
    ("<|python_tag|>", "llama3"),
    ('"parameters": dictionary of argument name', "llama3"),
)
#: (openers, closer): the first pair whose closer or opener stands in the template.
THINK_MARKS: tuple[tuple[str, str], ...] = (
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<mm:think>", "</mm:think>"),
    ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    ("<|think|>", "<|end|>"),
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)
#: Families whose templates put their marks together out of parts.
THINK_OF_STYLE: dict[ToolStyle, tuple[str, str]] = {
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    "hunyuan": ("<think:opensource>", "</think:opensource>"),
}
_NOISE: tuple[str, ...] = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|content|>",
    "<|begin|>assistant",
    "<|calls|>",
    "<|message_sep|>",
)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TOOLS = re.compile(r"\btools\b")
_SWITCHES = re.compile(r"\b(enable_thinking|reasoning_effort|thinking_budget|thinking_mode|thinking)\b")


class TemplateMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Advisory. `style`: how tool calls are written; `think`: opener and closer of the reasoning, None for
    channels and where there is none; `noise`: literals that frame an answer; `thinking_switches`: the variables by
    which a turn may set the thinking level.
    """

    tools: bool
    reasoning: ReasoningKind
    style: ToolStyle
    think: tuple[str, str] | None = None
    noise: tuple[str, ...] = ()
    thinking_switches: tuple[str, ...] = ()

    @property
    def thinking(self) -> bool:
        """Whether the model reasons before it answers."""
        return self.reasoning != "none"


def detect(source: str) -> TemplateMarks:
    """Read the marks in a template's text. An empty text gives the generic answer."""
    text = _COMMENT.sub("", source)
    style: ToolStyle = next((style for mark, style in _TOOL_MARKS if mark in text), "generic")
    pair = THINK_OF_STYLE.get(style) or next(
        ((begin, end) for begin, end in THINK_MARKS if end in text or begin in text), None
    )
    reasoning: ReasoningKind = "tags" if pair else "none"
    if style in ("gpt_oss", "muse"):
        reasoning, pair = "channels", None
    return TemplateMarks(
        tools=_TOOLS.search(text) is not None or "functions" in text,
        reasoning=reasoning,
        style=style,
        think=pair,
        noise=tuple(mark for mark in _NOISE if mark in text),
        thinking_switches=tuple(sorted(set(_SWITCHES.findall(text)))),
    )
