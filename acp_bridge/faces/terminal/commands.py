"""The commands of the terminal itself, beside those of every conversation: which there are, and reading them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from acp_bridge.conversations.commands import COMMANDS, TAKE_OVER, Slash
from shared.catalog.names import nearest
from shared.errors import ArgumentInvalid
from shared.protocol import api

LEAVE = ("exit", "quit", "bye")
HERE = (
    Slash(name="new", description="Begin another conversation"),
    Slash(name="list", description="The saved conversations of this folder"),
    Slash(name="continue", description="Go on with a saved conversation", hint="id, or how it begins"),
    Slash(name="file", description="Attach a text file to the next message", hint="file"),
    Slash(name="image", description="Attach an image to the next message", hint="file"),
    Slash(name="system", description="Show the system message, or set it", hint="text, or none"),
    Slash(name="set", description="Show the options of answers, or set one", hint="name value"),
    Slash(name="exit", description="Leave (also Ctrl-D, or Ctrl-C twice)"),
)
#: Of the conversation's own: what means something at a terminal.
THERE = tuple(command for command in COMMANDS if command.name != "help")
NAMES = ("help", *(command.name for command in (*HERE, *THERE)), *LEAVE[1:])
KEYS = """
Alt-Enter, or a backslash at the end of a line, begins another line; three quotes begin and end a longer message.
Tab completes. Ctrl-C stops an answer. A message that begins with `//` is sent with one slash.
"""


class Typed(msgspec.Struct, frozen=True):
    """A line that was typed: a command of the terminal, or what goes to the conversation (`name` "")."""

    name: str
    argument: str


def parse(text: str) -> Typed:
    """What was typed. Raises ArgumentInvalid for a command that there is not; a path is never one."""
    if text.startswith("//"):
        return Typed("", text[1:])
    if not text.startswith("/"):
        return Typed("", text)
    name, _, argument = text[1:].partition(" ")
    if name in LEAVE:
        return Typed("exit", "")
    if name == "help" or any(name == command.name for command in HERE):
        return Typed(name, argument.strip())
    if not name.isidentifier() or any(name == command.name for command in THERE):
        return Typed("", text)
    near = nearest(name, NAMES, most=1)
    meant = f"did you mean `/{near[0]}`?" if near else "`/help` lists them."
    raise ArgumentInvalid(name=f"/{name}", reason=f"there is no such command; {meant} Begin with `//` to send it")


def help_text() -> str:
    """The answer to /help, in Markdown."""
    lines = [
        f"- `/{command.name}{' <' + command.hint + '>' if command.hint else ''}`: {command.description}"
        for command in (*HERE, *(each for each in THERE if each.name != TAKE_OVER))
    ]
    return "\n".join([*lines, KEYS])


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "temperature": _number,
    "top_p": _number,
    "top_k": _whole,
    "min_p": _number,
    "repeat_penalty": _number,
    "seed": _whole,
    "max_tokens": _whole,
}


def options_text(sampling: api.Sampling) -> str:
    """The options and what they are now, in Markdown."""
    return "\n".join(f"- `{name}`: {_shown(getattr(sampling, name))}" for name in _OPTIONS)


def _shown(value: Any) -> str:
    return "the model's default" if value is None else str(value)


def with_option(sampling: api.Sampling, argument: str) -> api.Sampling:
    """`name value`, or `name default`. Raises ArgumentInvalid."""
    name, _, value = argument.partition(" ")
    name, value = name.replace("-", "_"), value.strip()
    if name not in _OPTIONS:
        near = nearest(name, _OPTIONS, most=1)
        which = f"did you mean {near[0]}?" if near else f"they are {', '.join(_OPTIONS)}"
        raise ArgumentInvalid(name=name, reason=f"there is no such option; {which}")
    try:
        return msgspec.structs.replace(sampling, **{name: None if value == "default" else _OPTIONS[name](value)})
    except ValueError:
        kind = "whole number" if _OPTIONS[name] is _whole else "number"
        raise ArgumentInvalid(name=name, reason=f"{value or 'nothing'} is not a {kind} of at least 0") from None
