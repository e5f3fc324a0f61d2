"""What one family of tool-call notation is to the grammar. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from modeld.output.emitter import Emitter
from modeld.output.reader import Reader, Steps
from modeld.output.tools import ToolBook

#: Reads one section whose opener was just consumed.
Parse = Callable[[Reader, Emitter, ToolBook, str], Steps[None]]


class Style(NamedTuple):
    """`openers` begin a section, `inner` marks stand only within one, `noise` is dropped outside sections.

    `bare`: JSON alone may be a call.
    """

    openers: tuple[str, ...]
    parse: Parse
    noise: tuple[str, ...] = ()
    bare: bool = False
    inner: tuple[str, ...] = ()
