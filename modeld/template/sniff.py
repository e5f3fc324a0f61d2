"""What the text of a chat template tells about its model, without rendering it.

Pure and cheap (no Jinja): the catalog shows the flags, the worker chooses the output grammar. The
marks are those the model families write; rendering a probe (`probe.py`) confirms what can be confirmed.
"""

from __future__ import annotations

import re

import msgspec

from modeld.output.format import OutputFormat, ToolStyle

#: The first whose mark stands in the template names the tool-call notation.
_TOOL_MARKS: tuple[tuple[str, ToolStyle], ...] = (
    ("<|channel|>", "gpt_oss"),
    ("｜DSML｜", "deepseek_dsml"),
    ("<seed:tool_call>", "seed"),
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
_THINK_MARKS: tuple[tuple[str, str], ...] = (
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


class Sniffed(msgspec.Struct, frozen=True, kw_only=True):
    """Advisory flags. `thinking_switches`: the variables by which a turn may set the thinking level."""

    tools: bool
    thinking: bool
    output: OutputFormat
    thinking_switches: tuple[str, ...] = ()

    @property
    def reasoning_format(self) -> str:
        """As it stands in the identity: `none`, `channels`, or the opener of the tags."""
        return self.output.think_open[0] if self.output.reasoning == "tags" else self.output.reasoning


def sniff(source: str) -> Sniffed:
    """Read the marks in a template's text. An empty text gives the generic answer."""
    text = _COMMENT.sub("", source)
    tools = _TOOLS.search(text) is not None or "functions" in text
    style: ToolStyle = next((style for mark, style in _TOOL_MARKS if mark in text), "generic")
    switches = tuple(sorted(set(_SWITCHES.findall(text))))
    noise = tuple(mark for mark in _NOISE if mark in text)
    if style == "gpt_oss":
        output = OutputFormat(reasoning="channels", tools="gpt_oss", noise=noise)
        return Sniffed(tools=tools, thinking=True, output=output, thinking_switches=switches)
    pair = next(((begin, end) for begin, end in _THINK_MARKS if end in text or begin in text), None)
    output = OutputFormat(
        reasoning="tags",
        think_open=(pair[0],) if pair else ("<think>",),
        think_close=(pair[1],) if pair else ("</think>",),
        tools=style,
        noise=noise,
    )
    if pair is None:
        output = msgspec.structs.replace(output, reasoning="none")
    return Sniffed(tools=tools, thinking=pair is not None, output=output, thinking_switches=switches)
