"""Families of tool-call notation, one table. Pure."""

from __future__ import annotations

from modeld.output.calls.gemmacall import gemma_call
from modeld.output.calls.keyed import keyed_calls
from modeld.output.calls.named import Marks, named_call
from modeld.output.calls.nested import MARK, nested_calls
from modeld.output.calls.pythonic import pythonic_calls
from modeld.output.calls.recipient import recipient_call
from modeld.output.calls.section import json_section
from modeld.output.calls.style import JsonCalls, Style
from modeld.output.calls.tagcall import Tags, tag_call
from shared.catalog.template_detection import ToolStyle

_HERMES = Style(
    ("<tool_call>",),
    json_section("</tool_call>"),
    ("</tool_call>",),
    json=JsonCalls("<tool_call>", "</tool_call>", "\n"),
)
_FUNCTION = ("<function=", ">", "</function>", "<parameter=", ">", "</parameter>")
_INVOKE = ('<invoke name="', '">', "</invoke>", '<parameter name="', '">', "</parameter>")
_HUNYUAN = Tags(
    "</tool_call:opensource>",
    "",
    "<tool_sep:opensource>",
    "",
    "<arg_key:opensource>",
    "</arg_key:opensource>",
    "</arg_value:opensource>",
    value_open="<arg_value:opensource>",
    bare_name=True,
)
_ATEM = (
    *("</atem:function_calls>", '<atem:invoke name="', '">', "</atem:invoke>"),
    *('<atem:parameter name="', '">', "</atem:parameter>"),
)
_KIMI_K3 = Tags(
    "<|close|>tools<|sep|>",
    '<|open|>call tool="',
    '"',
    "<|close|>call<|sep|>",
    '<|open|>argument key="',
    '"',
    "<|close|>argument<|sep|>",
    typed=("<|sep|>", 'type="string"'),
)
_DSML = ('<｜DSML｜invoke name="', '">', "</｜DSML｜invoke>", '<｜DSML｜parameter name="', '"', "</｜DSML｜parameter>")
_GLM = Tags(
    "</tool_call>", "", "", "", "<arg_key>", "</arg_key>", "</arg_value>", value_open="<arg_value>", bare_name=True
)
_DEEPSEEK_NOISE = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>")
_KIMI_NOISE = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_end|>")

STYLES: dict[ToolStyle, Style] = {
    "generic": _HERMES._replace(bare=True),
    "hermes": _HERMES,
    "llama3": Style(
        ("<|python_tag|>",),
        json_section("<|eom_id|>"),
        bare=True,
        json=JsonCalls("<|python_tag|>", key="parameters"),
    ),
    "qwen_xml": Style(
        ("<tool_call>", "<function="),
        tag_call(Tags("</tool_call>", *_FUNCTION)),
        ("</tool_call>", "</function>"),
    ),
    "seed": Style(
        ("<seed:tool_call>", "<function="),
        tag_call(Tags("</seed:tool_call>", *_FUNCTION)),
        ("</seed:tool_call>", "</function>"),
    ),
    "functionary_tags": Style(("<function=",), tag_call(Tags("", *_FUNCTION)), ("</function>",)),
    "minimax": Style(
        ("<minimax:tool_call>", '<invoke name="'),
        tag_call(Tags("</minimax:tool_call>", *_INVOKE)),
        ("</minimax:tool_call>", "</invoke>"),
    ),
    "deepseek_dsml": Style(
        ("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", '<｜DSML｜invoke name="'),
        tag_call(Tags("</｜DSML｜function_calls>", *_DSML, typed=('">', 'string="true"'))),
        ("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜invoke>"),
    ),
    "glm": Style(("<tool_call>",), tag_call(_GLM), ("</tool_call>",)),
    "mistral": Style(
        ("[TOOL_CALLS]",),
        named_call(Marks(("[ARGS]",), id_mark="[CALL_ID]")),
        inner=("[ARGS]", "[CALL_ID]"),
        json=JsonCalls("[TOOL_CALLS]", named_by="[ARGS]"),
    ),
    "deepseek": Style(
        ("<｜tool▁call▁begin｜>",),
        named_call(Marks(("<｜tool▁sep｜>",), "<｜tool▁call▁end｜>")),
        _DEEPSEEK_NOISE,
        inner=("<｜tool▁sep｜>",),
    ),
    "kimi": Style(
        ("<|tool_call_begin|>",),
        named_call(Marks(("<|tool_call_argument_begin|>",), "<|tool_call_end|>")),
        _KIMI_NOISE,
        inner=("<|tool_call_argument_begin|>",),
    ),
    "solar": Style(
        ("<|tool_call:begin|>",),
        named_call(Marks(("<|tool_call:args|>",), "<|tool_call:end|>", name_mark="<|tool_call:name|>")),
        ("<|tool_calls|>", "<|tool_call:end|>", "<|begin|>assistant"),
        inner=("<|tool_call:args|>", "<|tool_call:name|>"),
    ),
    "gemma": Style(
        ("<|tool_call>",),
        gemma_call('<|"|>', "<tool_call|>"),
        ("<tool_call|>",),
        inner=('<|"|>',),
    ),
    "function_gemma": Style(
        ("<start_function_call>",),
        gemma_call("<escape>", "<end_function_call>"),
        ("<end_function_call>",),
        inner=("<escape>",),
    ),
    "command": Style(("<|START_ACTION|>",), json_section("<|END_ACTION|>"), ("<|END_ACTION|>",)),
    "nemotron": Style(
        ("<TOOLCALL>",),
        json_section("</TOOLCALL>"),
        ("</TOOLCALL>",),
        json=JsonCalls("<TOOLCALL>", "</TOOLCALL>", listed=True),
    ),
    "granite": Style(
        ("<|tool_call|>",),
        json_section("<|/tool_call|>"),
        ("<|/tool_call|>",),
        bare=True,
        json=JsonCalls("<|tool_call|>", listed=True),
    ),
    "tool_calls_list": Style(("<tool_calls>",), json_section("</tool_calls>"), ("</tool_calls>",)),
    "functools": Style((" functools", "functools"), json_section(), json=JsonCalls("functools", listed=True)),
    "apertus": Style(("<|tools_prefix|>",), keyed_calls("<|tools_suffix|>"), ("<|tools_suffix|>",)),
    "lfm2": Style(("<|tool_call_start|>",), pythonic_calls("<|tool_call_end|>"), ("<|tool_call_end|>",), bare=True),
    "functionary_recipient": Style((">>>",), recipient_call),
    "function_tags": Style(
        ('<function name="',),
        tag_call(Tags("", '<function name="', '">', "</function>", '<param name="', '">', "</param>", cdata=True)),
        ("</function>",),
    ),
    "action": Style(("Action:\n```json", "Action: ```json", "Action:```json"), json_section("```")),
    "hunyuan": Style(
        ("<tool_call:opensource>",),
        tag_call(_HUNYUAN),
        ("</tool_call:opensource>", "<tool_calls:opensource>", "</tool_calls:opensource>"),
        inner=("<arg_key:opensource>", "<arg_value:opensource>", "<tool_sep:opensource>"),
    ),
    "minimax_m3": Style(
        (f"{MARK}<tool_call>", f'{MARK}<invoke name="'), nested_calls, (f"{MARK}</tool_call>", f"{MARK}</invoke>")
    ),
    "kimi_k3": Style(
        ("<|open|>tools<|sep|>", '<|open|>call tool="'),
        tag_call(_KIMI_K3),
        (
            *("<|close|>tools<|sep|>", "<|close|>call<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"),
            *("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        ),
        inner=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    "muse": Style(("<atem:function_calls>",), tag_call(Tags(*_ATEM)), ("</atem:function_calls>",)),
    "gigachat": Style(
        ("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>"),
        json_section("<|message_sep|>"),
    ),
}


def style_of(name: ToolStyle) -> Style:
    """The notation of a family; that of our own instructions where it has none."""
    return STYLES.get(name, STYLES["generic"])
