"""Renders a small conversation before a model counts as ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import TemplateFailed

if TYPE_CHECKING:
    from modeld.template.render import Template

_QUESTION = "What is the capital of France?"


def probe(template: Template) -> list[str]:
    """Try the template out and render one question; warnings for describe.

    Raises TemplateFailed where it cannot even do that, or leaves the question out.
    """
    shape = template.shape
    text = template.render([{"role": "user", "content": _QUESTION}])
    if _QUESTION not in text:
        raise TemplateFailed(message="the template leaves the user's words out", index=0)
    return [*template.warnings, *shape.notes()]
