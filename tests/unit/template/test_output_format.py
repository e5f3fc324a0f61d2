"""What a template's text tells about its model."""

from __future__ import annotations

import subprocess
import sys

import pytest
from templates import CHATML_TOOLS, STRICT

from modeld.output.calls import STYLES
from modeld.template.output_format import detect

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("mark", "style"),
    [
        ("<tool_call>", "hermes"),
        ("<tool_call><function=x><parameter=y>", "qwen_xml"),
        ("<|python_tag|>", "llama3"),
        ("[TOOL_CALLS]", "mistral"),
        ("<|channel|>", "gpt_oss"),
        ("<|tool_call>call:", "gemma"),
        ("<start_function_call>", "function_gemma"),
        ("<｜tool▁call▁begin｜>", "deepseek"),
        ("<tool_call><arg_key>", "glm"),
        ("nothing known", "generic"),
    ],
)
def test_the_notation_of_calls_is_reported_by_its_marks(mark: str, style: str) -> None:
    found = detect("{% if tools %}" + mark + "{% endif %}")
    assert found.tools
    assert found.output.tools == style
    assert style in STYLES or style == "gpt_oss"


@pytest.mark.parametrize(
    ("source", "kind", "opener"),
    [
        ("<think>", "tags", "<think>"),
        ("[THINK]", "tags", "[THINK]"),
        ("<|channel>thought", "tags", "<|channel>thought"),
        ("{{ x.split('</think>') }}", "tags", "<think>"),
        ("<|channel|>", "channels", "<think>"),
        ("", "none", "<think>"),
    ],
)
def test_the_marks_of_reasoning(source: str, kind: str, opener: str) -> None:
    output = detect(source).output
    assert output.reasoning == kind
    assert output.think_open == (opener,)


def test_comments_say_nothing() -> None:
    found = detect("{# <think> tools <tool_call> #}{{ messages }}")
    assert not found.tools
    assert not found.thinking
    assert found.reasoning_format == "none"


def test_whole_templates() -> None:
    assert detect(CHATML_TOOLS).tools
    assert detect(CHATML_TOOLS).thinking
    assert detect(CHATML_TOOLS).reasoning_format == "<think>"
    assert not detect(STRICT).tools
    assert not detect("").tools


def test_sniffing_needs_no_template_engine() -> None:
    code = "import sys, modeld.template.output_format; assert 'jinja2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
