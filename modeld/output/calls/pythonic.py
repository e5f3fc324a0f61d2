"""Calls written as Python: `[get_weather(city="Paris"), other(n=1)]` between two marks. Pure."""

from __future__ import annotations

import ast
import json
import re

from modeld.output.calls.style import Parse
from modeld.output.emitter import Emitter
from modeld.output.markers import Markers
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

_LONGEST = 256 * 1024
#: Models write line breaks into strings, which Python allows in none of one quote.
#: A string that never ends is one to the end of the text: each character is looked at once.
_BREAKS = re.compile(r"\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)", re.DOTALL)


def pythonic_calls(closer: str) -> Parse:
    """Read when the section is whole: Python has no use for half an expression."""
    ends = Markers((closer,))

    def parse(reader: Reader, out: Emitter, book: ToolBook, opener: str) -> Steps[None]:
        del book
        text, mark = yield from reader.line(ends)
        calls = _calls(text) if mark is not None and len(text) <= _LONGEST else []
        for name, arguments in calls:
            out.begin_call(name)
            out.arguments(arguments)
            out.end_call()
        if not calls:
            out.text(opener + text + (mark or ""))

    return parse


def _calls(text: str) -> list[tuple[str, str]]:
    try:
        try:
            body = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            body = ast.parse(_BREAKS.sub(_one_line, text.strip()), mode="eval").body
        nodes = body.elts if isinstance(body, (ast.List, ast.Tuple)) else [body]
        return [_call(node) for node in nodes]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []


class _JsonNames(ast.NodeTransformer):
    """`true`, `false` and `null` of JSON, which some models write among Python's own."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node


_CONSTANTS = {"true": True, "false": False, "null": None}
_JSON_NAMES = _JsonNames()


def _one_line(found: re.Match[str]) -> str:
    return found.group().replace("\r", "\\r").replace("\n", "\\n")


def _call(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with named arguments")
    arguments = {word.arg: ast.literal_eval(_JSON_NAMES.visit(word.value)) for word in node.keywords if word.arg}
    return ast.unparse(node.func), json.dumps(arguments, ensure_ascii=False)
