"""The names that tools of MCP servers get beside the bridge's own: plain, short, and each one only once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Names of tools as models, templates and strict endpoints take them.
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
NAME_LENGTH = 64


def tool_names(wanted: Sequence[tuple[str, str]], taken: Iterable[str]) -> list[str]:
    """A name for each (server, tool), in order. What is `taken` or was given before gets a number behind it."""
    used = set(taken)
    names: list[str] = []
    for server, tool in wanted:
        plain = _NOT_PLAIN.sub("_", f"{server}_{tool}")
        name, count = plain[:NAME_LENGTH], 1
        while name in used:
            count += 1
            end = f"_{count}"
            name = plain[: NAME_LENGTH - len(end)] + end
        used.add(name)
        names.append(name)
    return names


def server_names(names: Sequence[str]) -> list[str]:
    """How people tell the servers apart: one that is called like one before it gets its number."""
    shown: list[str] = []
    for name in names:
        count, said = 1, name
        while said in shown:
            count += 1
            said = f"{name} ({count})"
        shown.append(said)
    return shown
