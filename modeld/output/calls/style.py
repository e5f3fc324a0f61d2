"""What one family of tool-call notation is to the grammar. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from modeld.output.emitter import Emitter
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

#: Reads one section whose opener was just consumed.
Parse = Callable[[Reader, Emitter, ToolBook, str], Steps[None]]


class JsonCalls(NamedTuple):
    """How a family writes calls as JSON between marks, for engines that can hold a model to it.

    `listed`: in an array. `key` names the arguments. `named_by`: the mark that newer models of the family write between
    the name and its arguments, instead of an array.
    """

    opener: str
    closer: str = ""
    gap: str = ""
    listed: bool = False
    key: str = "arguments"
    named_by: str = ""


class Style(NamedTuple):
    """`openers` begin a section, `inner` marks stand only within one, `noise` is dropped outside sections.

    `bare`: JSON alone may be a call. `json`: what the calls are held to; None where the parser itself writes the JSON.
    """

    openers: tuple[str, ...]
    parse: Parse
    noise: tuple[str, ...] = ()
    bare: bool = False
    inner: tuple[str, ...] = ()
    json: JsonCalls | None = None
