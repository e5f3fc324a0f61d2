"""A model file is untrusted input: what its template may not do."""

from __future__ import annotations

import time

import pytest

from modeld.template.render import Template
from shared.errors import TemplateFailed

pytestmark = pytest.mark.unit
USER = [{"role": "user", "content": "hello"}]
LIMIT = 200_000

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ messages[0].__class__.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__ }}",
    "{{ strftime_now.__closure__ }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ self.__init__.__globals__ }}",
    "{{ '%s' | attr('format_map') }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ '{0[0]}'.format(messages) }}",
    "{% set x = ''['__cl' ~ 'ass__'] %}{{ x.mro() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ namespace.__init__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends 'x' %}",
]
CHANGES = [
    "{{ messages.append(1) }}",
    "{{ messages[0].more.items.append(1) }}",
    "{{ (messages | list)[0].more['items'].pop() }}",
    "{% set own = [] %}{{ own.clear() }}",
    "{% set own = [] %}{{ own.extend(messages) }}",
    "{{ messages.clear() }}",
    "{% set _ = messages[0].update({'content': 'bad'}) %}",
    "{% set _ = messages[0].pop('content') %}",
]
BOMBS = [
    "{{ 'a' * 1000000000 }}",
    "{{ 1000000000 * 'a' }}",
    "{{ [0] * 1000000000 }}",
    "{{ 9 ** 999999999 }}",
    "{% set ns = namespace(x=9) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ''.join([ns.x, ns.x]) %}{% endfor %}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "{{ 'x' | center(1000000000) }}",
    "{{ 'x'.center(1000000000) }}",
    "{{ 'x'.ljust(1000000000) }}",
    "{{ 'x'.zfill(1000000000) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ 'x\\ny' | indent(1000000000) }}",
    "{{ {'a': 1} | tojson(indent=1000000000) }}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99) %}aaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
    "{{ range(10000000) | list }}",
    "{{ 'aaaaaaaaaaaaaaaa'.replace('', 'bbbbbbbbbbbbbbbbbbbbbbb' * 5000) }}",
    "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_leads_out(source: str) -> None:
    try:
        text = Template(source).render(USER)
    except TemplateFailed:
        return
    assert "class" not in text
    assert "function" not in text
    assert "root" not in text
    assert "object at" not in text


@pytest.mark.parametrize("source", CHANGES)
def test_what_was_given_cannot_be_changed(source: str) -> None:
    messages = [{**USER[0], "more": {"items": [1, 2]}}]
    with pytest.raises(TemplateFailed):
        Template(source).render(messages)
    assert messages == [{**USER[0], "more": {"items": [1, 2]}}]


def test_lists_of_its_own_grow_and_shrink_and_are_new_each_time() -> None:
    source = "{% set ids = namespace(all=[]) %}"
    source += "{% for m in messages %}{% set _ = ids.all.append(m.content) %}{% endfor %}"
    template = Template(source + "{{ ids.all | join(',') }}{{ messages[0].content }}{{ ids.all.pop(0) }}{{ ids.all }}")
    assert template.render(USER) == template.render(USER)
    assert template.render(USER).endswith("[]")


@pytest.mark.parametrize("source", BOMBS)
def test_little_never_makes_much(source: str) -> None:
    began = time.process_time()
    with pytest.raises(TemplateFailed):
        Template(source, limit=LIMIT).render(USER)
    assert time.process_time() - began < 15


def test_a_long_conversation_is_no_bomb() -> None:
    messages = [{"role": "user", "content": "x" * 100_000}] * 20
    assert len(Template("").render(messages)) > 2_000_000
