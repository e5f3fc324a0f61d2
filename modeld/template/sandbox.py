"""The Jinja environment chat templates are written for, closed to everything else.

What templates expect (transformers' `apply_chat_template` set the custom): `raise_exception`,
`strftime_now`, a `tojson` that escapes no HTML, loop controls, the `generation` block, trimmed blocks.
What they get no way to: attributes of Python objects, changing what they were given, output or
strings over a limit. Time and memory are limited by whoever runs the worker.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Undefined, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: Longest text a template may build, in characters: above any context window in use (about 4 a token).
OUTPUT_LIMIT = 16 * 1024 * 1024
#: Filters no chat template needs and that make much out of little.
_DROPPED_FILTERS = ("center", "filesizeformat", "format", "pprint", "random", "urlize", "wordwrap", "xmlattr")
_DROPPED_GLOBALS = ("lipsum", "cycler", "joiner")
_GROWING = frozenset({"+", "*", "**", "%"})
_POWER_LIMIT = 64
_INT_BITS = 4096
_GROWING_METHODS = ("format_map", "center", "ljust", "rjust", "zfill", "expandtabs", "translate")
#: A field of `str.format` that says more than which value: widths and precisions build any length.
_FORMATTED_FIELD = re.compile(r"\{[^{}]*[:!\[.][^{}]*\}|\{\{|\}\}")


#: What templates that number calls or queue answers do with lists they made.
_OWN_LISTS = ("append", "pop")


class Given(list[Any]):
    """A list that a template was given: it cannot be changed."""


def given(value: Any) -> Any:
    """The same value with all its lists unchangeable."""
    if isinstance(value, dict):
        return {key: given(one) for key, one in value.items()}
    return Given(map(given, value)) if isinstance(value, (list, tuple)) else value


class TemplateRefused(Exception):
    """The template called `raise_exception`: the conversation does not fit its rules."""


class Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote; rendered as it stands."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Generator(CodeGenerator):
    """Sends `a ~ b` through the environment, as the sandbox does with the other operators."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - Jinja's visitor names
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """One environment serves one template."""

    intercepted_binops = _GROWING
    code_generator_class = _Generator

    def __init__(self, now: Callable[[], datetime], limit: int = OUTPUT_LIMIT) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            extensions=[Generation, loopcontrols],
            undefined=Undefined,
            cache_size=0,
        )
        self._limit = limit
        for name in _DROPPED_FILTERS:
            self.filters.pop(name, None)
        for name in _DROPPED_GLOBALS:
            self.globals.pop(name, None)
        self.filters["tojson"] = tojson
        self.filters["safe"] = str  # what is added to Jinja's own safe text is escaped for HTML
        self.filters["replace"] = lambda text, *rest: self._bounded_replace(str(text))(*rest)
        self.filters["join"] = lambda items, mark="", attribute=None: self._join_filter(items, mark, attribute)
        self.filters["indent"] = _bounded_indent(self.filters["indent"])
        self.globals["raise_exception"] = refuse
        self.globals["strftime_now"] = lambda form: now().strftime(str(form))

    def concat(self, parts: Iterable[str]) -> str:
        """What compiled templates join their output, macros and blocks with."""
        return self._bounded_join(parts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuses an operation whose result would be over the limit before it is computed."""
        if operator == "**" and not (_small(left, 2**32) and _small(right, _POWER_LIMIT)):
            raise SecurityError("a power of that size is not allowed in a chat template")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("string formatting is not allowed in a chat template")
        if operator == "*" and self._product(left, right) > self._limit:
            raise SecurityError("a result of that size is not allowed in a chat template")
        if operator == "+" and _length(left) + _length(right) > self._limit:
            raise SecurityError("a text of that size is not allowed in a chat template")
        return super().call_binop(context, operator, left, right)

    @staticmethod
    def _product(left: Any, right: Any) -> int:
        if isinstance(left, int) and isinstance(right, int):
            return 0 if left.bit_length() + right.bit_length() < _INT_BITS else sys.maxsize
        for one, other in ((left, right), (right, left)):
            if isinstance(other, int) and _length(one):
                return _length(one) * max(other, 0)
        return 0

    def getattr(self, obj: Any, attribute: str) -> Any:
        """What makes much out of little is refused; `str.format` fills in plain fields only.

        A list of the template's own may be appended to and popped; one that it was given is `Given`, and stays.
        """
        if type(obj) is list and attribute in _OWN_LISTS:
            return getattr(obj, attribute)
        if isinstance(obj, str):
            if attribute in _GROWING_METHODS or (attribute == "format" and _FORMATTED_FIELD.search(obj)):
                raise SecurityError(f"{attribute} is not allowed in a chat template")
            if attribute == "join":
                return lambda items: self._bounded_join(map(str, items), obj)
            if attribute == "replace":
                return self._bounded_replace(obj)
        return super().getattr(obj, attribute)

    def _bounded_join(self, parts: Iterable[str], mark: str = "") -> str:
        """Every joining of texts: macros, set blocks, `~`, `join`. Never more than the limit."""
        joined = list(parts)
        if sum(map(len, joined)) + len(mark) * len(joined) > self._limit:
            raise SecurityError("a text of that size is not allowed in a chat template")
        return mark.join(joined)

    def _join_filter(self, items: Any, mark: Any, attribute: Any) -> str:
        values = items if attribute is None else (self.getitem(item, attribute) for item in items)
        return self._bounded_join(map(str, values), str(mark))

    def _bounded_replace(self, text: str) -> Callable[..., str]:
        def replace(old: str, new: str, count: int = -1) -> str:
            if (text.count(old) if old else len(text) + 1) * _length(new) > self._limit:
                raise SecurityError("a text of that size is not allowed in a chat template")
            return text.replace(old, new, count)

        return replace


def refuse(message: Any = "") -> NoReturn:
    """`raise_exception` of the templates."""
    raise TemplateRefused(str(message))


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: no HTML escapes, characters as they are."""
    if indent is not None and not _small(indent, 16):
        raise SecurityError("an indent of that size is not allowed in a chat template")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _bounded_indent(indent: Callable[..., str]) -> Callable[..., str]:
    def bounded(text: str, width: Any = 4, first: bool = False, blank: bool = False) -> str:
        if _length(width) > 64 or (isinstance(width, int) and not _small(width, 64)):
            raise SecurityError("an indent of that size is not allowed in a chat template")
        return indent(text, width, first, blank)

    return bounded


def _small(value: Any, bound: int) -> bool:
    return isinstance(value, (int, float)) and -bound <= value <= bound


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, list, tuple)) else 0


__all__ = ["OUTPUT_LIMIT", "Given", "Sandbox", "TemplateError", "TemplateRefused", "given", "refuse", "tojson"]
