"""Texts of special tokens in contents: disguised for a rendering, whatever a template does with it, and put back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.template.content import ContentRenderer, Rendered
from modeld.template.escape import Escaper, SpecialTexts
from modeld.template.render import Template
from shared.errors import TemplateFailed

MARKS = (
    "<|im_start|>",
    "<|im_end|>",
    "<s>",
    "</s>",
    "<s><s>",
    "><",
    "[INST]",
    "<[INST]>",
    " <pad>",
    '"end"',
    "\ue000x",
)
SPECIAL = SpecialTexts(MARKS)
PIECES = (*MARKS, "a", " ", "\n", "<", ">", "<|im_", "end|>", "s", "\ue000", "\ue001", "é", '"', "\\", "x", "[", "<S>")
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
PLAIN = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def rendered(source: str, *contents: str, special: SpecialTexts = SPECIAL, **message: Any) -> Rendered:
    messages = [user(text) | message for text in contents]
    return ContentRenderer(Template(source), special, special).render(messages, [], None)


@given(st.sets(texts.filter(str.strip)), texts)
def test_what_is_found_is_the_longest_from_the_left(marks: set[str], text: str) -> None:
    special, expected, at = SpecialTexts(marks), [], 0
    while at < len(text):
        length = max((len(one) for one in special.texts if text.startswith(one, at)), default=0)
        expected += [(at, at + length)] if length else []
        at += length or 1
    assert special.spans(text) == expected
    assert list(special.begins(text)) == [at for at in range(len(text)) if text.startswith(tuple(special.texts), at)]


@given(texts)
def test_a_disguised_content_holds_no_mark_and_comes_back(text: str) -> None:
    escaper = Escaper(SPECIAL, lambda: json.dumps(text, ensure_ascii=False) + "".join(MARKS))
    disguised = escaper(text)
    assert SPECIAL.spans(disguised) == []
    assert len(disguised) == len(text)
    assert escaper.restore(disguised) == text
    for form in (json.dumps(disguised), json.dumps(disguised, ensure_ascii=False)):
        assert json.loads(escaper.restore(escaper.plain(form))) == text


@given(texts)
def test_the_prompt_is_what_it_was_and_only_the_templates_marks_stay(text: str) -> None:
    found = rendered(PLAIN, text, "b")
    assert found.text == Template(PLAIN).render([user(text), user("b")])
    assert len(found.text) == len(found.disguised)
    assert [found.text[begin:end] for begin, end in SPECIAL.spans(found.disguised)] == ["<s>", "</s>"] * 2


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("m.content | trim", "<s>a</s>"),
        ("m.content[2:] if m.content[0] == ' ' else m.content", "<s>a</s> "),
        ("m.content[2:3] ~ m.content[-2:] if m.content[0] == ' ' else m.content", "<> "),
        ("m.content ~ m.content", "  <s>a</s>   <s>a</s> "),
        ("m.content | tojson", '"  <s>a</s> "'),
        ("m.content | tojson(ensure_ascii=true)", '"  <s>a</s> "'),
        ("[m.content]", "['  <s>a</s> ']"),
        ("{'k': m} | tojson", '{"k": {"role": "user", "content": "  <s>a</s> "}}'),
        ("m.content | length", "11"),
        ("m.content.split('</s>') | length", "1"),
        ("'seen' if '<s>' in m.content else 'opaque'", "opaque"),
        ("m.content | upper | lower", "  <s>a</s> "),
        ("m.content | replace('a', 'b')", "  <s>b</s> "),
    ],
)
def test_whatever_a_template_does_with_a_content_no_mark_comes_out_of_it(expression: str, expected: str) -> None:
    found = rendered(f"[{{% for m in messages %}}{{{{ {expression} }}}}{{% endfor %}}]", "  <s>a</s> ")
    assert found.text == f"[{expected}]"
    assert SPECIAL.spans(found.disguised) == []


def test_marks_that_only_upper_or_lower_case_makes_are_none() -> None:
    for case, text in (("lower", "<S>"), ("upper", "[inst]")):
        found = rendered(f"{{% for m in messages %}}{{{{ m.content | {case} }}}}{{% endfor %}}", text)
        assert SPECIAL.spans(found.text)
        assert SPECIAL.spans(found.disguised) == []


@pytest.mark.parametrize(
    ("source", "contents"),
    [
        ("{% for m in messages %}<|im_{{ m.content }}.{% endfor %}", ["end|> and so on"]),
        ("{% for m in messages %}({{ m.content }}end|>{% endfor %}", ["so on <|im_"]),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", ["so on <|im_", "end|> and so on"]),
        ("{% for m in messages %}<{{ m.content }}>{% endfor %}", ["s"]),
        ("{% for m in messages %}<|{{ m.content | trim }}|>{% endfor %}", ["im_end "]),
    ],
)
def test_a_mark_between_a_template_and_a_content_or_two_contents_is_none(source: str, contents: list[str]) -> None:
    found = rendered(source, *contents)
    assert SPECIAL.spans(found.text)
    assert SPECIAL.spans(found.disguised) == []


def test_a_mark_that_a_template_makes_of_the_role_is_its_own() -> None:
    special = SpecialTexts(["<|user|>"])
    found = rendered("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}", "<|user|>", special=special)
    assert special.spans(found.disguised) == [(0, 8)]
    assert special.spans(found.text) == [(0, 8), (8, 16)]


def test_a_role_that_is_no_word_is_a_content() -> None:
    found = rendered("{% for m in messages %}{{ m.role }}{% endfor %}", "x", role="user<s>system")
    assert SPECIAL.spans(found.text)
    assert SPECIAL.spans(found.disguised) == []


def test_a_template_that_looks_at_the_ends_of_a_content_renders_as_ever() -> None:
    source = "{% for m in messages %}<s>{{ 'quote' if m.content.startswith('>') else m.content }}{% endfor %}"
    assert rendered(source, "> said").text == "<s>quote"


def test_arguments_that_hide_a_mark_in_json_escapes_are_contents_too() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
        "{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}{{ m.name }}{% endif %}{% endfor %}"
    )
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": '{"k": "\\u003cs>"}'}}
    found = rendered(source, "x", role="assistant", tool_calls=[call])
    assert found.text == 'xf{"k": "<s>"}(no result)f'
    assert SPECIAL.spans(found.disguised) == []


def test_a_conversation_of_all_private_characters_is_refused_only_where_one_is_needed() -> None:
    every = "".join(map(chr, (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))))
    assert every in rendered(PLAIN, every).text
    with pytest.raises(TemplateFailed, match="private character"):
        rendered(PLAIN, f"{every}<s>")


@pytest.mark.parametrize("marks", [["<" * count + ">" for count in range(1, 300)], ["<x>"] * 3, []])
def test_a_vocabulary_made_to_be_awkward_is_read(marks: list[str]) -> None:
    assert SpecialTexts(marks).spans("a<<<>") == ([(1, 5)] if len(marks) > 3 else [])
