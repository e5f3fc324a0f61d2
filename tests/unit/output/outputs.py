"""Outputs as the families write them, and what a reader must get: the samples of every test here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from modeld.output.format import OutputFormat
from modeld.output.parser import OutputParser
from shared.protocol.api import Event, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "line": {"type": "integer"}, "more": {"type": "object"}},
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = {"path": 'a "b"\né', "line": 3, "more": {"x": [1, True]}}
_JSON = json.dumps(ARGUMENTS, ensure_ascii=False)


class Sample(NamedTuple):
    """`text`, `reasoning` and calls as (name, arguments) that `output` stands for under `form`."""

    name: str
    form: OutputFormat
    output: str
    text: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = ()


class Read(NamedTuple):
    """What a parser gave."""

    text: str
    reasoning: str
    calls: list[ToolCall]
    partial: dict[int, str]
    events: list[Event]


def read(
    form: OutputFormat,
    pieces: Iterable[bytes],
    *,
    stops: Sequence[str] = (),
    tools: Sequence[dict[str, Any]] = TOOLS,
    cut: bool = False,
) -> Read:
    """Feed the pieces; the deltas joined."""
    parser = OutputParser(form, stops, tools, new_id=lambda: "id")
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    last, calls = parser.finish(cut=cut)
    events += last
    partial: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            partial[event.index] = partial.get(event.index, "") + event.arguments
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return Read(text, reasoning, calls, partial, events)


def whole(form: OutputFormat, output: str, **options: Any) -> Read:
    """Read an output that comes in one piece."""
    return read(form, [output.encode()], **options)


TAGS = OutputFormat(reasoning="tags", tools="hermes")
PLAIN = OutputFormat()
CHANNELS = OutputFormat(reasoning="channels", tools="gpt_oss")
CALL = [("read", ARGUMENTS)]


def _tools(style: Any) -> OutputFormat:
    return OutputFormat(tools=style)


_XML = f"<parameter=path>\n{ARGUMENTS['path']}\n</parameter>\n<parameter=line>\n3\n</parameter>\n"
_XML += '<parameter=more>\n{"x": [1, true]}\n</parameter>\n'
_INVOKED = f'<parameter name="path">{ARGUMENTS["path"]}</parameter>\n<parameter name="line">3</parameter>\n'
_INVOKED += '<parameter name="more">{"x": [1, true]}</parameter>\n'
_DSML = _INVOKED.replace("</parameter", "</｜DSML｜parameter").replace("<parameter", "<｜DSML｜parameter")
_DSML = _DSML.replace('"path"', '"path" string="true"').replace('"line"', '"line" string="false"')
_DSML = _DSML.replace('"more"', '"more" string="false"')
_GLM = f"read\n<arg_key>path</arg_key>\n<arg_value>{ARGUMENTS['path']}</arg_value>\n"
_GLM += (
    '<arg_key>line</arg_key>\n<arg_value>3</arg_value>\n<arg_key>more</arg_key><arg_value>{"x": [1, true]}</arg_value>'
)
_GEMMA = '{path:<|"|>a "b"\né<|"|>,line:3,more:{x:[1,true]}}'
_PARAMS = f'<param name="path"><![CDATA[{ARGUMENTS["path"]}]]></param><param name="line">3</param>'
_PARAMS += "<param name=\"more\">{'x': [1, True]}</param>"
_ATEM = _INVOKED.replace("<parameter", "<atem:parameter").replace("</parameter", "</atem:parameter")
_M = "]<]minimax[>["
_SUFFIXED = (
    _GLM.removeprefix("read\n").replace("arg_key>", "arg_key:opensource>").replace("_value>", "_value:opensource>")
)
_NAMED = "".join(
    f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
    for key, kind, value in (
        ("path", "string", ARGUMENTS["path"]),
        ("line", "number", "3"),
        ("more", "object", '{"x": [1, true]}'),
    )
)
MUSE = OutputFormat(reasoning="channels", tools="muse")

SAMPLES = [
    Sample("plain", PLAIN, "Hello, 日本 🎉!\n", text="Hello, 日本 🎉!\n"),
    Sample("leading space stays", PLAIN, "  indented", text="  indented"),
    Sample("thoughts", TAGS, "<think>\nhm, 🎉\n</think>\n\nYes.", text="Yes.", reasoning="hm, 🎉"),
    Sample("opener in the prompt", OutputFormat(reasoning="tags", opened=True), "\nhm</think>Yes", "Yes", "hm"),
    Sample(
        "opener in the prompt and again",
        OutputFormat(reasoning="tags", opened=True),
        "<think>hm</think>Yes",
        "Yes",
        "hm",
    ),
    Sample("no thoughts", TAGS, "<think>\n\n</think>\n\nYes", text="Yes"),
    Sample("stray closer", TAGS, "Yes</think> and no", text="Yes and no"),
    Sample("never closed", TAGS, "<think>The answer is 4", text="The answer is 4", reasoning="The answer is 4"),
    Sample("nested", TAGS, "<think>a <think>b</think> c</think>d", text="d", reasoning="a <think>b</think> c"),
    Sample(
        "nested and never closed",
        TAGS,
        "<think>a <think>b</think>d",
        text="d",
        reasoning="a <think>b</think>d",
    ),
    Sample("tags spoken of", TAGS, "Use `<think>` and `</think>`.", text="Use `<think>` and `</think>`."),
    Sample(
        "tags spoken of in thoughts",
        TAGS,
        "<think>they mean `</think>`</think>ok",
        text="ok",
        reasoning="they mean `</think>`",
    ),
    Sample("thoughts that end in a quote", TAGS, '<think>he said "hi"</think>ok', "ok", 'he said "hi"'),
    Sample("JSON that is an answer", TAGS, '[{"files": ["a"]}]', text='[{"files": ["a"]}]'),
    Sample("a model without thoughts", PLAIN, "a <think> b </think> c", text="a <think> b </think> c"),
    Sample(
        "other tags",
        OutputFormat(reasoning="tags", think_open=("[THINK]",), think_close=("[/THINK]",)),
        "[THINK]x[/THINK]y",
        "y",
        "x",
    ),
    Sample("hermes", TAGS, f'ok\n<tool_call>\n{{"name": "read", "arguments": {_JSON}}}\n</tool_call>', "ok", "", CALL),
    Sample(
        "hermes, two",
        TAGS,
        f'<tool_call>{{"arguments": {_JSON}, "name": "read"}}</tool_call>\n<tool_call>{{"name": "now"}}</tool_call>',
        calls=[*CALL, ("now", {})],
    ),
    Sample(
        "hermes, brace forgotten", TAGS, f'<tool_call>{{"name": "read", "arguments": {_JSON}</tool_call>', calls=CALL
    ),
    Sample(
        "hermes, arguments as a string",
        TAGS,
        f'<tool_call>{{"name": "read", "arguments": {json.dumps(_JSON)}}}</tool_call>',
        calls=CALL,
    ),
    Sample(
        "raw line break in a string",
        TAGS,
        '<tool_call>{"name": "read", "arguments": {"path": "a\nb"}}</tool_call>',
        calls=[("read", {"path": "a\nb"})],
    ),
    Sample(
        "call in unclosed thoughts",
        TAGS,
        f'<think>hm\n<tool_call>{{"name": "read", "arguments": {_JSON}}}</tool_call>',
        "",
        "hm",
        CALL,
    ),
    Sample("not a call", TAGS, "<tool_call>nothing</tool_call>", text="<tool_call>nothing"),
    Sample("qwen", _tools("qwen_xml"), f"<tool_call>\n<function=read>\n{_XML}</function>\n</tool_call>", calls=CALL),
    Sample(
        "qwen, no parameters",
        _tools("qwen_xml"),
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        calls=[("now", {})],
    ),
    Sample("qwen, wrapper forgotten", _tools("qwen_xml"), f"<function=read>\n{_XML}</function>", calls=CALL),
    Sample(
        "seed", _tools("seed"), f"<seed:tool_call>\n<function=read>\n{_XML}</function>\n</seed:tool_call>", calls=CALL
    ),
    Sample("functionary", _tools("functionary_tags"), f"<function=read>{_JSON}</function>", calls=CALL),
    Sample(
        "functionary, recipients",
        OutputFormat(tools="functionary_recipient", begun=True),
        f"all\nok>>>read\n{_JSON}",
        "ok",
        "",
        CALL,
    ),
    Sample(
        "minimax",
        _tools("minimax"),
        f'<minimax:tool_call>\n<invoke name="read">\n{_INVOKED}</invoke>\n</minimax:tool_call>',
        calls=CALL,
    ),
    Sample(
        "dsml",
        _tools("deepseek_dsml"),
        f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n{_DSML}</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        calls=CALL,
    ),
    Sample("glm", _tools("glm"), f"ok<tool_call>{_GLM}</tool_call>", "ok", "", CALL),
    Sample("cdata", _tools("function_tags"), f'<function name="read">{_PARAMS}</function>', calls=CALL),
    Sample("llama", _tools("llama3"), f'{{"name": "read", "parameters": {_JSON}}}', calls=CALL),
    Sample("llama, marked", _tools("llama3"), f'<|python_tag|>{{"name": "read", "parameters": {_JSON}}}', calls=CALL),
    Sample(
        "llama, JSON that is an answer", _tools("llama3"), '{"name": "Bob", "age": 3}', text='{"name": "Bob", "age": 3}'
    ),
    Sample("llama, an answer without arguments", _tools("llama3"), '{"name": "read"}', text='{"name": "read"}'),
    Sample(
        "mistral",
        _tools("mistral"),
        f'[TOOL_CALLS][{{"name": "read", "arguments": {_JSON}, "id": "abcdefghi"}}]',
        calls=CALL,
    ),
    Sample(
        "mistral, new",
        _tools("mistral"),
        f"[TOOL_CALLS]read[CALL_ID]abcdefghi[ARGS]{_JSON}[TOOL_CALLS]now[ARGS]{{}}",
        calls=[*CALL, ("now", {})],
    ),
    Sample("gemma", _tools("gemma"), f"<|tool_call>call:read{_GEMMA}<tool_call|>", calls=CALL),
    Sample(
        "deepseek",
        _tools("deepseek"),
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n{_JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls=CALL,
    ),
    Sample(
        "deepseek, new",
        _tools("deepseek"),
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{_JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls=CALL,
    ),
    Sample(
        "kimi",
        _tools("kimi"),
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{_JSON}<|tool_call_end|><|tool_calls_section_end|>",
        calls=CALL,
    ),
    Sample(
        "solar",
        _tools("solar"),
        f"<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>read<|tool_call:args|>{_JSON}<|tool_call:end|>",
        calls=CALL,
    ),
    Sample(
        "command",
        _tools("command"),
        f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "read", "parameters": {_JSON}}}]<|END_ACTION|>',
        calls=CALL,
    ),
    Sample(
        "nemotron", _tools("nemotron"), f'<TOOLCALL>[{{"name": "read", "arguments": {_JSON}}}]</TOOLCALL>', calls=CALL
    ),
    Sample("apertus", _tools("apertus"), f'<|tools_prefix|>[{{"read": {_JSON}}}]<|tools_suffix|>', calls=CALL),
    Sample(
        "lfm",
        _tools("lfm2"),
        '<|tool_call_start|>[read(path="a", line=3), now()]<|tool_call_end|>ok',
        "ok",
        "",
        [("read", {"path": "a", "line": 3}), ("now", {})],
    ),
    Sample(
        "our own words",
        OutputFormat(tools="generic", described=True),
        f'{{"name": "read", "arguments": {_JSON}}}',
        calls=CALL,
    ),
    Sample(
        "channels",
        CHANNELS,
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>",
        "Yes",
        "hm",
    ),
    Sample(
        "channels, call",
        CHANNELS,
        f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.read <|constrain|>json<|message|>{_JSON}<|call|>",
        "",
        "hm",
        CALL,
    ),
    Sample(
        "channels, recipient first",
        CHANNELS,
        f" to=functions.read<|channel|>commentary json<|message|>{_JSON}<|call|>",
        calls=CALL,
    ),
    Sample(
        "recipients alone",
        MUSE,
        " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Yes<|eot|>",
        "Yes",
        "hm",
    ),
    Sample(
        "recipients alone, call",
        MUSE,
        f" to=self<|message|>hm<|eom|><|start|>assistant to=read<|message|><atem:function_calls>\n"
        f'<atem:invoke name="read">\n{_ATEM}</atem:invoke>\n</atem:function_calls><|eot|>',
        "",
        "hm",
        CALL,
    ),
    Sample(
        "marks before every tag",
        _tools("minimax_m3"),
        f'ok{_M}<tool_call>\n{_M}<invoke name="read">{_M}<path>a "b"\né{_M}</path>{_M}<line>3{_M}</line>'
        f"{_M}<more>{_M}<x>{_M}<item>1{_M}</item>{_M}<item>true{_M}</item>{_M}</x>{_M}</more>{_M}</invoke>\n"
        f'{_M}<invoke name="now">{_M}</invoke>\n{_M}</tool_call>',
        "ok",
        calls=[*CALL, ("now", {})],
    ),
    Sample(
        "marks with a suffix",
        _tools("hunyuan"),
        f"<tool_calls:opensource>\n<tool_call:opensource>read<tool_sep:opensource>\n{_SUFFIXED}</tool_call:opensource>\n"
        "<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
        calls=[*CALL, ("now", {})],
    ),
    Sample(
        "opened and closed by name",
        OutputFormat(
            reasoning="tags",
            think_open=("<|open|>think<|sep|>",),
            think_close=("<|close|>think<|sep|>",),
            opened=True,
            tools="kimi_k3",
        ),
        "hm<|close|>think<|sep|><|open|>response<|sep|>ok<|close|>response<|sep|><|open|>tools<|sep|>"
        f'<|open|>call tool="read" index="1"<|sep|>{_NAMED}<|close|>call<|sep|><|close|>tools<|sep|>'
        "<|close|>message<|sep|><|end_of_msg|>",
        "ok",
        "hm",
        CALL,
    ),
    Sample(
        "python with a line break in a string",
        _tools("lfm2"),
        '<|tool_call_start|>[read(path=\'a "b"\né\', line=3, more={"x": [1, true]})]<|tool_call_end|>',
        calls=CALL,
    ),
    Sample("channels forgotten", CHANNELS, "Just an answer", text="Just an answer"),
]
