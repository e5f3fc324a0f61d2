"""What the model picker shows, from rows and the remembered pick. Pure; knows no editor.

Ids, names, groups, order and the current value depend on what can be served, on the pick and on what modeld said last
to be active, so they stay as they are while modeld restarts; only the descriptions tell the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from shared.protocol.api import LibraryRow
from shared.text.words import size_text

#: The value of the row that is current while nothing answers; never a model.
NOTHING = "none"
#: Why nothing answers, when nobody gave a reason.
NO_CHAT_MODEL = "no model here can chat; `modeld pull starter` gets a small one"
#: The other way out where providers are configured.
OR_REMOTE = ", or pick a remote model"
ACTIVE_GROUP = "active"
INSTALLED_GROUP = "installed"
AWAY_GROUP = "unavailable"
#: Editors show about this many characters on the button.
NAME_LENGTH = 32


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the picker."""

    value: str
    name: str
    description: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Choices under one heading."""

    id: str
    name: str
    choices: tuple[Choice, ...]


class Picker(msgspec.Struct, frozen=True, kw_only=True):
    """`current` is always the value of one of the choices."""

    current: str
    groups: tuple[Group, ...]

    def values(self) -> list[str]:
        """Every value that may be picked, in order."""
        return [choice.value for group in self.groups for choice in group.choices if choice.value != NOTHING]


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a configured provider. `id` is `provider/name` (see `is_remote`); `served` is what the endpoint calls
    it. `vision`: it takes images; `thinking`: how it is told how much to think, "" where it is not; `fills`: it
    completes at a cursor, as the config file allows.
    """

    id: str
    name: str
    provider: str
    served: str = ""
    context: int = 0
    vision: bool = False
    thinking: Literal["", "effort", "template"] = ""
    fills: bool = False
    embedding_only: bool = False


def is_remote(name: str) -> bool:
    """Whether this names a model of a provider, listed or not: the name of a local model has no slash."""
    return "/" in name


def row_called(name: str, rows: Sequence[LibraryRow]) -> LibraryRow | None:
    """The row of this name, else the one that was called so before: a pick outlives a change of names."""
    by_name = next((row for row in rows if row.name == name), None)
    return by_name or next((row for row in rows if name in row.aliases), None)


def current_model(pick: str, default: str) -> str:
    """What answers where a request names no model: the pick, else the local default, else NOTHING.

    Every face goes by this rule: a model of another machine answers only where it was picked.
    """
    return pick or ("" if is_remote(default) else default) or NOTHING


def nothing_reason(reason: str, remotes: Sequence[RemoteModel]) -> str:
    """Why nothing answers while nothing is picked, with the ways out."""
    return (reason or NO_CHAT_MODEL) + (OR_REMOTE if remotes else "")


def build_picker(
    rows: Sequence[LibraryRow],
    remotes: Sequence[RemoteModel],
    pick: str,
    default: str,
    reason: str,
    active: str = "",
) -> Picker:
    """The picker for one conversation: the active model, the installed ones, the remote ones by provider.

    `rows` are the advertised local models; `pick` is what the user picked ("" when nothing yet); `default` is the local
    model that answers while nothing was picked; `reason` says why the pick, or everything, is missing; `active` is the
    model that modeld last said to be active (it keeps its heading through a gap). A pick that is not advertised stays,
    marked with the reason, and stays current. Where nothing answers, a row that says why is the first and current.
    """
    chat = [row for row in rows if not row.embedding_only]
    picked = row_called(pick, rows)
    pick = pick if picked is None else picked.name
    remotes = [model for model in remotes if not model.embedding_only]
    current = current_model(pick, default if default in [row.name for row in chat] else "")
    groups = []
    if current == NOTHING:
        why = nothing_reason(reason, remotes)
        nothing = Choice(value=NOTHING, name=short_name(f"No model: {why}"), description=why)
        groups.append(Group(id=AWAY_GROUP, name="Not available", choices=(nothing,)))
    for group, name, members in (
        (ACTIVE_GROUP, "Active", [row for row in chat if row.name == active]),
        (INSTALLED_GROUP, "Installed", [row for row in chat if row.name != active]),
    ):
        if members:
            groups.append(Group(id=group, name=name, choices=tuple(_local(row) for row in members)))
    for provider in dict.fromkeys(model.provider for model in remotes):
        choices = tuple(_remote(model) for model in remotes if model.provider == provider)
        groups.append(Group(id=f"remote-{provider}", name=f"Remote: {provider}", choices=choices))
    known = [choice.value for group in groups for choice in group.choices]
    if pick and pick not in known:
        lost = Choice(value=pick, name=short_name(pick), description=f"not available: {reason or 'not found'}")
        groups.append(Group(id=AWAY_GROUP, name="Not available", choices=(lost,)))
    return Picker(current=current, groups=tuple(groups))


def short_name(name: str) -> str:
    """The name as it fits the button of an editor."""
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def describe(row: LibraryRow) -> str:
    """State first, then size and context."""
    if row.state == "restarting":
        facts = [row.reason or row.state]
    else:
        facts = [f"{row.state} ({row.reason})" if row.reason else row.state]
    if row.size_bytes:
        facts.append(size_text(row.size_bytes))
    if row.context_train:
        facts.append(f"context {row.context_train:,}")
    if row.quantization:
        facts.append(row.quantization)
    if not row.has_template and not row.embedding_only:
        facts.append("base model, no chat template")
    return ", ".join(facts)


def _local(row: LibraryRow) -> Choice:
    return Choice(value=row.name, name=short_name(row.title or row.name), description=describe(row))


def _remote(model: RemoteModel) -> Choice:
    context = f", context {model.context:,}" if model.context else ""
    return Choice(value=model.id, name=short_name(model.name), description=f"remote, {model.provider}{context}")
