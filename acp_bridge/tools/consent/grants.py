"""What "always allow" covers: one exact command line, or a short table of commands that only look. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from shared.text.shown import code_span, one_line

GrantKind = Literal["edits", "line", "looking", "tool"]

#: A longer line is not on a button in full; the question holds it.
BUTTON_LENGTH = 80


class Grant(msgspec.Struct, frozen=True):
    """One thing that was allowed for the session: `what` is compared to the letter, `shown` stands on the button."""

    kind: GrantKind
    what: str
    shown: str


EDITS = Grant("edits", "edits", "edits, except of files that make tools run code,")


class Verb(msgspec.Struct, frozen=True):
    """What may follow a verb: options from a list, `-<number>` where `counts`, and up to `names` plain words."""

    options: frozenset[str] = frozenset()
    names: int = 0
    counts: bool = False


_COMMITS = frozenset({"--oneline", "--stat", "--name-only", "--name-status", "--no-color"})

#: Programs and verbs that write nothing, run nothing that the workspace names, and read nothing outside of it. An
#: option is here because it was looked up, not because it looks harmless: what is not here is granted by its exact
#: line. `git diff` takes one name: with two, outside of a repository, it compares any two files.
LOOKING: Mapping[str, Mapping[str, Verb]] = MappingProxyType(
    {
        "git": {
            "status": Verb(frozenset({"-s", "-b", "-sb", "--short", "--branch", "--porcelain", "--long"}), names=4),
            "log": Verb(
                _COMMITS | {"--graph", "--all", "--decorate", "--no-merges", "--reverse", "--"}, names=4, counts=True
            ),
            "show": Verb(_COMMITS, names=1),
            "diff": Verb(frozenset({"--stat", "--cached", "--staged", "--name-only", "--name-status", "--"}), names=1),
            "branch": Verb(frozenset({"-a", "-r", "-v", "-vv", "--all", "--remotes", "--show-current"})),
            "ls-files": Verb(frozenset({"-m", "-o", "--modified", "--others", "--exclude-standard", "--"}), names=4),
            "blame": Verb(frozenset({"-w", "-s", "--"}), names=1),
        }
    }
)

#: How such a program is run, so that neither the settings of a repository nor a terminal makes it do more: no pager, no
#: file watcher, no hook of the index, no repository hidden in plain folders, no download of what a partial clone left
#: out, no new index.
HARDENED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "git": {
            "GIT_PAGER": "cat",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_CONFIG_COUNT": "3",
            "GIT_CONFIG_KEY_0": "core.fsmonitor",
            "GIT_CONFIG_VALUE_0": "false",
            "GIT_CONFIG_KEY_1": "safe.bareRepository",
            "GIT_CONFIG_VALUE_1": "explicit",
            "GIT_CONFIG_KEY_2": "core.hooksPath",
            "GIT_CONFIG_VALUE_2": "/dev/null",
        }
    }
)

#: Nothing here means anything to a shell, is quoted, or looks like another character.
_PLAIN_LINE = re.compile(r"[A-Za-z0-9_./: -]+")
#: Braille without a dot: a letter to Unicode, a blank to the eye.
_EMPTY_LETTER = "\u2800"
_COUNT = re.compile(r"-[0-9]{1,6}")
_DRIVE = re.compile(r"[A-Za-z]:")


def looking_verb(line: str) -> tuple[str, str] | None:
    """The program and verb of a line that stands in the table with every word of it, else None."""
    words = line.split(" ")
    if len(words) < 2 or not _PLAIN_LINE.fullmatch(line):
        return None
    program, name, *rest = words
    verb = LOOKING.get(program, {}).get(name)
    if verb is None:
        return None
    names = [word for word in rest if not (word in verb.options or (verb.counts and _COUNT.fullmatch(word)))]
    if len(names) > verb.names or not all(map(_inside, names)):
        return None
    return program, name


def _inside(word: str) -> bool:
    """A name that is no option and leads nowhere else: a path below this folder, a branch, a commit, a range."""
    if word[:1] in ("", "-", "/", ":") or _DRIVE.match(word):
        return False
    return ".." not in re.split(r"[/:]", word)


def command_grant(line: str, *, looks: bool) -> Grant | None:
    """What "always" allows for a line: it alone, to the letter; with `looks` all that the table has of its verb.

    None for a line that a person cannot read as it is (it has line breaks, or characters that show nothing or
    something else): that is allowed once only.
    """
    verb = looking_verb(line) if looks else None
    if verb is not None:
        named = " ".join(verb)
        return Grant("looking", named, f"any `{named} ...` that only looks")
    if not line or not line.isprintable() or one_line(line, len(line)) != line or _EMPTY_LETTER in line:
        return None
    shown = f"exactly `{line}`" if len(line) <= BUTTON_LENGTH and "`" not in line else "exactly this command line"
    return Grant("line", line, shown)


def tool_grant(what: str, tool: str, server: str) -> Grant:
    """What "always" allows for one tool of a server: `what` tells it from every other, the rest is how it is shown."""
    return Grant("tool", what, f"{code_span(tool, BUTTON_LENGTH)} of {server}")
