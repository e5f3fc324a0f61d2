"""The interface that every face (ACP, LSP) implements for the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from acp_bridge.conversations.events import CardKind, FileLocation, Item, Shown

AnswerKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One way to answer a question."""

    id: str
    name: str
    kind: AnswerKind


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Asked beside a card: `card` is its id, shown with `title` when the face does not know it yet.

    `input` is what a tool was called with, None where no tool was. A question about a switch names the `active` model,
    the `wanted` one and the clients that use the active one.
    """

    card: str
    title: str
    kind: CardKind = "other"
    items: list[Item] = []
    locations: list[FileLocation] = []
    input: dict[str, Any] | None = None
    answers: list[Answer]
    active: str = ""
    wanted: str = ""
    in_use_by: list[str] = []


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command to run, without a shell unless the shell is the program.

    `environment` is put over that of the bridge; the variables named in `withheld` are not given to it.
    """

    program: str
    arguments: list[str]
    cwd: str
    output_limit: int
    environment: Mapping[str, str] = {}
    withheld: frozenset[str] = frozenset()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `code` is None when a signal ended it."""

    output: str
    code: int | None
    truncated: bool = False


class Terminal(Protocol):
    """A command running in the editor's terminal."""

    id: str

    async def finish(self) -> Finished:
        """Wait for its end."""
        ...

    async def kill(self) -> None:
        """End it now."""
        ...

    async def release(self) -> None:
        """Free it; a live command is ended."""
        ...


class Face(Protocol):
    """An editor, seen from the core. Offers are what this editor said it can do."""

    @property
    def client(self) -> str:
        """The editor's name for people."""
        ...

    @property
    def reads_files(self) -> bool:
        """Whether `read_file` works."""
        ...

    @property
    def writes_files(self) -> bool:
        """Whether `write_file` works."""
        ...

    @property
    def runs_terminals(self) -> bool:
        """Whether `open_terminal` works."""
        ...

    def show(self, conversation: str, event: Shown) -> None:
        """Show an event. Never waits."""
        ...

    async def ask(self, conversation: str, question: Question) -> str | None:
        """The id of the chosen answer, or None when the user cancelled. Raises CannotAsk."""
        ...

    async def read_file(self, conversation: str, path: str) -> str:
        """The text of a file as the editor has it, unsaved changes included. Raises ToolFailed."""
        ...

    async def write_file(self, conversation: str, path: str, text: str) -> None:
        """Write through the editor. Raises ToolFailed."""
        ...

    async def open_terminal(self, conversation: str, command: Command) -> Terminal:
        """Run a command in the editor's terminal. Raises ToolFailed."""
        ...


CANNOT_ASK = "this editor cannot ask for permission"
NOT_UNDERSTOOD = "this editor's answer to the request for permission cannot be understood"


class CannotAsk(Exception):
    """The editor does not show questions, or nothing can be made of its answer: what is not understood is not allowed.

    The text is CANNOT_ASK or NOT_UNDERSTOOD.
    """


class ToolFailed(Exception):
    """A tool could not do its work; the text is for the model and the user."""
