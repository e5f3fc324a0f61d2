"""Sentences and formats shared by every command and face. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: The remedy wherever modeld does not run and nothing brings it back by itself.
START_MODELD = "start it with `modeld start`"
#: So many lines of one kind are read; the rest is counted.
FEW = 10
#: Why a name means nothing, where nothing else is known of it.
NOT_IN_LIBRARY = "it is not in the library any more"


def counted(number: int, word: str) -> str:
    """`1 model`, `2 models`, `1,024 tokens`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def size_text(size: int | None) -> str:
    """Bytes for people, "?" where they are not known."""
    if size is None:
        return "?"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def age(seconds: float) -> str:
    """A span of time for people: `3.0 s`, `12 min`, `1.5 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def switch_sentence(active: str, wanted: str) -> str:
    """The one sentence that every face, command and error says of a switch."""
    if active == wanted:
        return f"Loading {wanted} with other settings will unload it and drop its warm context"
    return f"Switching from {active} to {wanted} will unload {active} and drop its warm context"


def use_sentence(active: str, users: Iterable[str]) -> str:
    """Who would lose by it."""
    return f"{active} is {used_by(users)}"


def used_by(users: Iterable[str]) -> str:
    """The same where the model is named already."""
    return f"in use by {users_named(users)}"


def users_named(users: Iterable[str]) -> str:
    """Editors and other clients, each once; that they have no name is no reason to say nothing."""
    return ", ".join(dict.fromkeys(users)) or "another editor"


def few(lines: Sequence[str], where: str, most: int = FEW) -> list[str]:
    """The first of many lines, and how many more there are `where`: what matters beside them must stay in sight."""
    left = len(lines) - most
    return [*lines[:most], f"and {left:,} more: {where}"] if left > 0 else list(lines)


def is_text(given: str) -> bool:
    """Whether it can be written as UTF-8: names of files and arguments of commands may be any bytes."""
    return not any("\ud800" <= each <= "\udfff" for each in given)


def as_text(given: str) -> str:
    """What cannot be written replaced by U+FFFD, as messages between our processes have it."""
    return given if is_text(given) else given.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
