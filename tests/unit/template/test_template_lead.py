"""How each family begins a tool call, read off its own template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from modeld.output.grammar.call_grammar import must_call, tool_grammar
from modeld.output.parser import OutputParser
from modeld.template.lead import call_lead
from modeld.template.render import Template
from shared.protocol.api import TextDelta
from vendored import templates

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(600)]  # the first run fetches sources
NAME = "get_weather"
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": NAME,
            "description": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}},
        },
    }
]
#: They write the next instruction behind every call, or a notation that is not read.
UNREPORTED = {"CohereForAI-c4ai-command-r-plus-tool_use"}
#: What the template tells is how an earlier call looks; some lists are not written in this one.
BY_FAMILY = {"Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"}


def load(path: Path) -> Template:
    return Template(path.read_text(encoding="utf-8"), "<s>", "</s>")


def test_a_turn_that_must_call_begins_as_the_models_own_template_does() -> None:
    unreported = set()
    for path in sorted(templates().glob("*.jinja")):
        template = load(path)
        form = template.output_format(template.render([{"role": "user", "content": "x"}], TOOLS, "off"))
        lead, grammar = call_lead(template, TOOLS), tool_grammar(form, TOOLS)
        assert grammar is not None
        held = must_call(grammar, form, lead)
        if held is None or held.forced is None:
            unreported.add(path.stem)
            continue
        assert (lead is None) == (path.stem in BY_FAMILY), path.stem
        forced = held.forced
        begun = forced.before + (forced.section.opener if forced.section else forced.begins[0].text)
        parser = OutputParser(form, tools=TOOLS)
        shown = [event for char in begun for event in parser.feed(char.encode())]
        said = "".join(event.text for event in shown if isinstance(event, TextDelta))
        assert said.strip() == "", f"{path.stem}: what begins a call is never shown as words"
    assert unreported == UNREPORTED


@pytest.mark.parametrize(
    ("stem", "begin"),
    [
        ("Qwen3-Coder", f"<tool_call>\n<function={NAME}>"),
        ("meta-llama-Llama-3.1-8B-Instruct", f'{{"name": "{NAME}", "parameters": '),
        ("openai-gpt-oss-120b", f" to=functions.{NAME}<|channel|>commentary json<|message|>"),
        ("google-gemma-4-31B-it", f"<|tool_call>call:{NAME}{{"),
        ("moonshotai-Kimi-K2", f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{NAME}:0"),
    ],
)
def test_families_without_a_section_begin_with_the_name(stem: str, begin: str) -> None:
    template = load(templates() / f"{stem}.jinja")
    form = template.output_format(template.render([{"role": "user", "content": "x"}], TOOLS, "off"))
    grammar = tool_grammar(form, TOOLS)
    assert grammar is not None
    held = must_call(grammar, form, call_lead(template, TOOLS))
    assert held is not None
    assert held.forced is not None
    assert held.forced.begins[0].text.startswith(begin)


def test_a_thought_that_the_prompt_opened_is_closed_first() -> None:
    template = load(templates() / "MiniMax-M2.jinja")
    form = template.output_format(template.render([{"role": "user", "content": "x"}], TOOLS, "off"))
    assert form.opened
    grammar = tool_grammar(form, TOOLS)
    assert grammar is not None
    held = must_call(grammar, form, call_lead(template, TOOLS))
    assert held is not None
    assert held.forced is not None
    assert held.forced.before.startswith("</think>")
