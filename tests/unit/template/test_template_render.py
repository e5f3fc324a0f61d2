"""Templates say what they can; what they cannot is said another way, never left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from templates import CHATML_TOOLS, DEAF, HELPERS, PARTS, STRICT, TEXT_ARGUMENTS, TRUSTING

from modeld.template.default import MISSING
from modeld.template.probe import probe
from modeld.template.render import Template
from shared.errors import TemplateFailed

pytestmark = pytest.mark.unit
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello <b>ünï</b> & co"}
SAID = {"role": "assistant", "content": "Hi."}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": {}}}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "look", "arguments": '{"at": "é"}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
GOT = {"role": "tool", "content": "a tree", "tool_call_id": "abcdefghi"}


def test_a_missing_template_is_chatml_with_a_warning() -> None:
    template = Template("")
    assert template.warnings == [MISSING]
    assert MISSING in probe(template)
    assert template.end_texts == ("<|im_end|>",)
    assert Template("{{ messages[0].content }}").end_texts == (), "a template of its own is trusted with its own marks"
    assert template.render([SYSTEM, USER]).startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello"
    )
    assert template.render([USER]).endswith("<|im_start|>assistant\n")
    assert not template.render([USER], add_generation_prompt=False).endswith("assistant\n")


def test_the_digest_names_the_text_in_use() -> None:
    assert Template("a").digest != Template("b").digest
    assert Template("").digest == Template("").digest


def test_begin_and_end_marks_are_given_to_the_template() -> None:
    template = Template("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>", "</s>")
    assert template.render([{"role": "user", "content": "x"}]) == "<s>x</s>"


def test_a_system_message_goes_where_the_template_refuses_it() -> None:
    template = Template(STRICT, "<bos>")
    assert not template.shape.system
    text = template.render([SYSTEM, USER, SAID, {"role": "user", "content": "More"}])
    assert text.startswith("<bos><start>user\nBe brief.\n\nHello")
    assert any("no system role" in warning for warning in probe(template))


def test_a_system_message_that_would_be_dropped_is_kept() -> None:
    assert "[user] Be brief.\n\nHello" in Template(DEAF).render([SYSTEM, USER])


def test_a_system_message_alone_is_not_lost() -> None:
    assert "Be brief." in Template(STRICT).render([SYSTEM])


def test_neighbours_of_one_role_are_joined_where_roles_must_alternate() -> None:
    template = Template(STRICT)
    assert template.shape.alternating
    text = template.render([USER, {"role": "user", "content": "second"}, SAID, {"role": "user", "content": "third"}])
    assert "co\n\nsecond<end>" in text
    assert not Template(CHATML_TOOLS).shape.alternating


def test_contents_become_parts_and_parts_become_text() -> None:
    template = Template(PARTS)
    assert template.shape.parts
    listed = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]}
    assert template.render([listed]) == "[user]one two"
    assert "one two" in Template("").render([listed])


def test_tools_calls_and_results_in_the_templates_own_way() -> None:
    template = Template(CHATML_TOOLS)
    text = template.render([SYSTEM, USER, CALLED, GOT], [TOOL])
    assert '"name": "look"' in text
    assert '<tool_call>\n{"name": "look", "arguments": {"at": "é"}}\n</tool_call>' in text
    assert "<tool_response>a tree</tool_response>" in text
    assert "None" not in text


def test_arguments_as_text_and_null_contents_where_the_template_wants_them() -> None:
    template = Template(TEXT_ARGUMENTS)
    assert template.shape.text_arguments
    assert template.shape.null_content
    object_call = {**CALL, "function": {"name": "look", "arguments": {"at": "é"}}}
    for call in (CALL, object_call):
        text = template.render([USER, {**CALLED, "tool_calls": [call]}, GOT], [TOOL])
        assert 'CALL look{"at": "é"}' in text
        assert "GOT a tree" in text


def test_tools_are_described_where_the_template_knows_none() -> None:
    template = Template(STRICT)
    text = template.render([USER, CALLED, GOT], [TOOL])
    assert '"name": "look"' in text
    assert '<tool_call>{"name": "look", "arguments": {"at": "é"}}</tool_call>' in text
    assert "<tool_response>\na tree\n</tool_response>" in text
    form = template.output_format(text)
    assert form.described
    assert form.tools == "generic"
    assert any("no tools" in warning for warning in probe(template))


def test_a_template_that_trusts_in_tools_gets_an_empty_list() -> None:
    assert "Hello" in Template(TRUSTING).render([USER])


def test_thinking_is_switched_by_the_templates_own_variable() -> None:
    template = Template(CHATML_TOOLS)
    assert template.detected.thinking_switches == ("enable_thinking",)
    on, off = template.render([USER]), template.render([USER], thinking="off")
    assert template.output_format(on).opened
    assert not template.output_format(off).opened
    assert off.endswith("<think>\n\n</think>\n\n")
    assert template.render([USER], thinking="high") == on


def test_levels_reach_templates_that_have_them() -> None:
    template = Template("{{ reasoning_effort | default('usual') }} {{ messages[0].content }}")
    assert template.render([USER], thinking="low").startswith("low ")
    assert template.render([USER]).startswith("usual ")


def test_the_helpers_that_templates_expect() -> None:
    template = Template(HELPERS, now=lambda: datetime(2026, 11, 29, tzinfo=UTC))
    text = template.render([USER, SAID])
    assert text.startswith("29 Nov 2026\n")
    assert '"content": "Hello <b>ünï</b> & co"' in text
    assert "Hi." in text


def test_a_refusal_says_what_and_where() -> None:
    source = "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not this') }}{% endif %}"
    source += "{{ m.content }}{% endfor %}"
    with pytest.raises(TemplateFailed) as failed:
        Template(source).render([USER, SAID, {"role": "user", "content": "no"}, SAID])
    assert failed.value.data == {"message": "not this", "index": 2}


def test_an_index_is_not_reported_where_messages_were_moved() -> None:
    source = STRICT + "{% if messages[0].content.startswith('Be') %}{{ raise_exception('never') }}{% endif %}"
    with pytest.raises(TemplateFailed) as failed:
        Template(source).render([SYSTEM, USER])
    assert failed.value.data["index"] is None


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ messages[0].content", "{% for m in messages %}", "{{ 'a' | nofilter }}"]
)
def test_what_is_no_template_is_refused_at_once(source: str) -> None:
    with pytest.raises(TemplateFailed, match="not a usable template"):
        Template(source)


@pytest.mark.parametrize("source", ["nothing of it", "{{ raise_exception('never') }}", "{{ messages.content.x }}"])
def test_the_probe_refuses_a_template_that_loses_the_words(source: str) -> None:
    with pytest.raises(TemplateFailed):
        probe(Template(source))


def test_messages_of_the_caller_are_left_as_they_were() -> None:
    called: dict[str, Any] = {**CALLED, "tool_calls": [CALL]}
    messages: list[dict[str, Any]] = [dict(USER), {"role": "user", "content": "second"}, called, dict(GOT)]
    before = repr(messages)
    for source in (STRICT, CHATML_TOOLS, TEXT_ARGUMENTS, PARTS):
        try:
            Template(source).render(messages, [TOOL])
        except TemplateFailed:
            continue
        finally:
            assert repr(messages) == before
