"""Conversations as they really come, through seventy public templates: each renders, and nothing is left out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from templates import CHATML_TOOLS, DEAF, PARTS, STRICT, TEXT_ARGUMENTS

from modeld.template.render import Template
from shared.errors import TemplateFailed
from template_conversations import (
    CONVERSATIONS,
    SCHEMAS,
    SYSTEM,
    TOOLS,
    USER,
    Told,
    call,
    calls,
    missing,
    result,
    said,
    schema_conversation,
    tool,
)
from vendored import templates

KNOWN = Path(__file__).with_name("public.json")
#: The most tools that one turn offers.
MANY = 500


def opened(path: Path) -> Template:
    return Template(path.read_text(encoding="utf-8"), "<s>", "</s>")


def faults(template: Template, name: str, told: Told) -> list[str]:
    try:
        text = template.render(told.messages, told.tools)
    except TemplateFailed as error:
        return [f"{name}: {error.data['message']}"]
    return [f"{name}: {word} is left out" for word in missing(text, told.words)]


@pytest.mark.integration
@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_public_templates_are_those_that_were_tried() -> None:
    known: dict[str, str] = json.loads(KNOWN.read_text(encoding="utf-8"))
    assert len(known) >= 70
    found = {one.stem: hashlib.sha256(one.read_bytes()).hexdigest()[:24] for one in templates().glob("*.jinja")}
    assert found == known


@pytest.mark.integration
@pytest.mark.model
@pytest.mark.timeout(600)
def test_every_conversation_survives_every_public_template() -> None:
    told = CONVERSATIONS | {f"tools with {name}": schema_conversation(name) for name in SCHEMAS}
    found = []
    for path in sorted(templates().glob("*.jinja")):
        template = opened(path)
        found += [f"{path.stem}, {fault}" for name, one in told.items() for fault in faults(template, name, one)]
    assert found == []


@pytest.mark.integration
@pytest.mark.model
@pytest.mark.timeout(600)
def test_five_hundred_tools_of_which_one_is_bad() -> None:
    bad = tool(
        "bad_one", None, {"type": "object", "properties": {"x": True, "y": {"$ref": "#/nowhere"}}, "required": None}
    )
    tools = [tool(f"tool_{number}", f"Does {number}") for number in range(MANY)]
    told = Told([SYSTEM, USER], [*tools, bad], ("SYSWORD", "USERWORD", "tool_0", f"tool_{MANY - 1}", "bad_one"))
    found = []
    for name in (
        "Qwen-Qwen3-0.6B",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "ByteDance-Seed-OSS",
        "openai-gpt-oss-120b",
    ):
        found += faults(opened(templates() / f"{name}.jinja"), name, told)
    assert found == []


@pytest.mark.unit
def test_tools_that_a_template_refuses_are_described_and_the_others_shown() -> None:
    source = (
        "{% for t in tools or [] %}{% if t.function.name.startswith('bad') %}{{ raise_exception('no') }}{% endif %}"
        "[{{ t.function.name }}]{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    tools = [tool(f"{'bad' if number in (3, 250, 499) else 'good'}_{number}", "Does it") for number in range(MANY)]
    text = Template(source).render([SYSTEM, USER], tools)
    assert missing(text, ("[good_0]", "[good_498]", '"bad_3"', '"bad_250"', '"bad_499"', "SYSWORD", "USERWORD")) == []
    assert "[bad" not in text
    every = Template(source).render([SYSTEM, USER], [tool(f"bad_{number}", "Does it") for number in range(MANY)])
    assert missing(every, ('"bad_0"', f'"bad_{MANY - 1}"', "USERWORD")) == []


ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "calls"])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[str]]:
    """Messages in any order, and their words."""
    messages: list[dict[str, Any]] = []
    words = []
    for index, role in enumerate(draw(st.lists(ROLES, min_size=1, max_size=7))):
        word, ids = f"WORD{index}W", draw(st.sampled_from(["call_1", "functions.x:0", "abcdefghi"]))
        words.append(word)
        if role == "calls":
            made = [
                call("add", {"a": f"ARG{index}N{number}W"}, f"{ids}{number}")
                for number in range(draw(st.integers(1, 3)))
            ]
            words += [f"ARG{index}N{number}W" for number in range(len(made))]
            messages.append(calls(*made, content=word))
        elif role == "tool":
            messages.append(result(word, draw(st.sampled_from([ids, f"{ids}0", f"{ids}1"])), None))
        else:
            messages.append(said(role, word))
    return messages, words


OWN = [Template(one, "<s>", "</s>") for one in (CHATML_TOOLS, DEAF, PARTS, STRICT, TEXT_ARGUMENTS, "")]


@pytest.mark.unit
@given(conversations(), st.sampled_from(range(len(OWN))))
def test_roles_in_any_order_lose_no_word(told: tuple[list[dict[str, Any]], list[str]], which: int) -> None:
    messages, words = told
    text = OWN[which].render(messages, TOOLS)
    assert missing(text, tuple(words)) == []


@pytest.mark.integration
@pytest.mark.model
@pytest.mark.timeout(600)
@settings(max_examples=60)
@given(conversations())
def test_roles_in_any_order_are_refused_by_no_public_template(told: tuple[list[dict[str, Any]], list[str]]) -> None:
    messages, words = told
    for name, template in public_templates().items():
        text = template.render(messages, TOOLS)
        assert missing(text, tuple(words)) == [], name


def public_templates(known: dict[str, Template] = {}) -> dict[str, Template]:  # noqa: B006 - compiled once
    """The strictest of them, and the most used."""
    if not known:
        for name in (
            "mistralai-Mistral-Nemo-Instruct-2407",
            "mistralai-Ministral-3-14B-Reasoning-2512",
            "Mistral-Small-3.2-24B-Instruct-2506",
            "meta-llama-Llama-3.2-3B-Instruct",
            "google-gemma-2-2b-it",
            "Qwen3.5-4B",
            "openai-gpt-oss-120b",
            "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
            "Apertus-8B-Instruct",
            "MiniMax-M2",
        ):
            known[name] = opened(templates() / f"{name}.jinja")
    return known
