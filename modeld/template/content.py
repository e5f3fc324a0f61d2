"""A conversation rendered so that the template's marks can be distinguished from the same texts in contents. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from modeld.template.escape import Borders, Escaper, SpecialTexts
from modeld.template.render import Template
from shared.errors import TemplateFailed


class Rendered(NamedTuple):
    """A prompt's text: as it is, and of the same length with all marks in contents disguised."""

    text: str
    disguised: str


class ContentRenderer:
    """Renders with one template. Safe to use from two threads."""

    def __init__(
        self,
        template: Template,
        escaped: SpecialTexts,
        special: SpecialTexts,
        limits: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`escaped`: texts that are never structure in a content; `special`: those of them that are single tokens.

        `limits` are around each rendering.
        """
        self._template = template
        self._limits = limits
        self._escaped = escaped
        self._special = special
        self._borders: tuple[frozenset[str], Borders] = (frozenset(), Borders(()))

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        thinking: str | None,
        fixed: str = "",
    ) -> Rendered:
        """`fixed` is a text in contents that stays as it is. Raises TemplateFailed."""

        def taken() -> str:
            given = json.dumps([messages, tools], ensure_ascii=False, default=str)
            return "".join([given, self._template.source, *self._escaped.texts])

        def rendered(escaper: Escaper) -> Rendered:
            with self._limits():
                disguised = self._template.render(messages, tools, thinking, escape=escaper)
            disguised = escaper.plain(disguised)
            return Rendered(escaper.restore(disguised), disguised)

        escaper = Escaper(self._escaped, taken)
        first = rendered(escaper)
        borders = self._borders_of(first)
        if not any(map(borders.touched_by, escaper.contents)):
            return first
        # a mark may have come about between a content and what stands beside it: its ends are disguised too, where
        # the template does not look at them
        try:
            second = rendered(Escaper(self._escaped, taken, borders))
        except TemplateFailed:
            return first
        same = second.text == first.text and second.disguised.count(fixed) == first.disguised.count(fixed)
        return second if same else first

    def _borders_of(self, rendered: Rendered) -> Borders:
        """What could be completed here: only special tokens that came about at all."""
        text = rendered.disguised
        found = frozenset(text[begin:end] for begin, end in self._special.spans(text))
        known, borders = self._borders
        if known != found:
            borders = Borders(found)
            self._borders = (found, borders)
        return borders
