"""Slash commands: which there are, and telling them from text. Pure; what they do is in `core.slash_commands`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from acp_bridge.conversations.events import Part, TextPart


class Slash(msgspec.Struct, frozen=True, kw_only=True):
    """`hint` names the argument, "" when there is none."""

    name: str
    description: str
    hint: str = ""


#: The only one that may be sent to a conversation which another editor writes.
TAKE_OVER = "takeover"

COMMANDS: tuple[Slash, ...] = (
    Slash(name="help", description="What this agent can do, and its commands"),
    Slash(name="model", description="Show the model of this conversation, or pick another", hint="name of a model"),
    Slash(name="status", description="What modeld is doing right now"),
    Slash(name="load", description="Load the picked model now"),
    Slash(name="unload", description="Unload the active model and free its memory"),
    Slash(name="switch", description="Pick a model and load it now", hint="name of a model"),
    Slash(name="context", description="How full the window is"),
    Slash(name="compact", description="Replace the conversation so far by a summary of it"),
    Slash(name="export", description="Save this conversation as a Markdown file", hint="name of the file"),
    Slash(name="tools", description="Give the model tools, or take them away", hint="on or off"),
    Slash(name=TAKE_OVER, description="Go on here with a conversation that another editor has open"),
    Slash(name="doctor", description="Check modeld, the library and this conversation"),
    Slash(name="start", description="Start modeld on this computer"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def parse_command(parts: Sequence[Part]) -> tuple[str, str] | None:
    """(name, argument) when the message is a command, else None.

    Only a known name at the very start counts, ended by a space or the end: a path is never a command.
    """
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    text = "".join(texts).strip()
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    return (name, argument.strip()) if name in _BY_NAME else None


def help_text() -> str:
    """The answer to /help."""
    lines = [
        f"- `/{command.name}{' <' + command.hint + '>' if command.hint else ''}`: {command.description}"
        for command in COMMANDS
    ]
    return "\n".join(
        [
            "This agent answers with models that run on this computer, through modeld.",
            "Pick a model in the model menu; it is loaded when you send a message.",
            "",
            *lines,
        ]
    )
