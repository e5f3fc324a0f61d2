"""The tool interface: a schema for the model, and a plan made from arguments before anything happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from acp_bridge.conversations.events import CardKind, FileLocation, Item, PlanSet
from acp_bridge.tools.consent.grants import Grant

if TYPE_CHECKING:
    from acp_bridge.tools.workspace import Workspace


#: Shows what a tool has so far on its card, while it works.
ShowItems = Callable[[list[Item]], None]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool did: `text` for the model, `items` for the card.

    `saved` takes the place of `items` in the saved card, where those mean nothing later (a terminal of the editor).
    `steps` is a new plan of the work, None when there is none.
    """

    text: str
    items: list[Item] = []
    saved: list[Item] | None = None
    steps: PlanSet | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would do, shown before it is done.

    `grant` is what "always" would allow, None when each time is asked again; `details` is what the question shows
    besides `items`. `effect` does it, and may show how far it is.
    """

    title: str
    kind: CardKind
    effect: Callable[[ShowItems], Awaitable[Outcome]]
    locations: list[FileLocation] = []
    items: list[Item] = []
    details: list[Item] = []
    grant: Grant | None = None


class Tool(Protocol):
    """One tool. `changes` tells the ones that ask permission from the ones that only look."""

    name: str
    description: str
    parameters: dict[str, Any]
    changes: bool

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """Check the arguments and say what would be done. Raises ToolFailed."""
        ...


def schema_of(tool: Tool) -> dict[str, Any]:
    """The tool in the chat-completion shape."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def parameters(required: list[str], **properties: tuple[str, str]) -> dict[str, Any]:
    """A JSON schema of an object. Each property is (type, description)."""
    described = {name: {"type": kind, "description": text} for name, (kind, text) in properties.items()}
    return {"type": "object", "properties": described, "required": required}
