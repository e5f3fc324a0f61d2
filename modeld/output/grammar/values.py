"""The values of a tool-call grammar: what a turn may call, and how its calls are written. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Lead(NamedTuple):
    """The text around a tool's name. `json`: up to its arguments, an object; else `after` parts the name off."""

    before: str
    after: str
    json: bool


class Opened(NamedTuple):
    """A call has just begun. `written`: its text that has come already. `tool`: its arguments come next;
    None where the section behind `opener` does.
    """

    written: str
    tool: str | None = None
    opener: str = ""


class CallForm(msgspec.Struct, frozen=True):
    """One call: the parts before its arguments and after them; white space may stand before each."""

    tool: str
    begin: tuple[str, ...]
    end: tuple[str, ...]


class Section(msgspec.Struct, frozen=True):
    """Calls between `opener` and `closer` ("": the output ends). `listed`: they stand in one JSON array.

    `gap` is what the family's models write behind the opener and before the closer.
    """

    opener: str
    closer: str
    gap: str
    listed: bool
    calls: tuple[CallForm, ...]


class Begin(msgspec.Struct, frozen=True):
    """How a call of one tool begins, its name included. `json`: its arguments follow at once, as an object."""

    tool: str
    text: str
    json: bool


class Forced(msgspec.Struct, frozen=True):
    """The answer is a call from its first token: `before` (what ends open thoughts), then `section` whole, or one of
    `begins` and what the model makes of it.
    """

    before: str
    section: Section | None = None
    begins: tuple[Begin, ...] = ()


class ToolGrammar(msgspec.Struct, frozen=True):
    """The calls that a turn may make: sections by their openers, and the schema of each tool's arguments.

    `forced`: it must make one.
    """

    sections: tuple[Section, ...]
    schemas: dict[str, str]
    forced: Forced | None = None
