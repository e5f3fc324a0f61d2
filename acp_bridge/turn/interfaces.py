"""What the driver of a turn needs: a model, tools, and somebody who shows what happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from acp_bridge.cancel import Cancel
from acp_bridge.turn.model.consent import Asker
from shared.protocol import api


class View(Asker, Protocol):
    """Who shows a turn. Nothing here waits, but `ask`."""

    def chosen(self, model: str) -> None:
        """The model that answers is known."""
        ...

    def request(self, number: int) -> None:
        """The model is about to be asked for the `number`th time in this turn, counted from 1."""
        ...

    def event(self, event: api.Event) -> None:
        """A stage or a piece of the answer."""
        ...

    def notice(self, text: str) -> None:
        """The bridge's own words to the user."""
        ...

    def answered(self, result: api.TurnResult, model: str) -> None:
        """Note that one request to the model has ended."""
        ...


class Model(Protocol):
    """What answers: the local slot or a remote provider."""

    name: str

    @property
    def supports_images(self) -> bool:
        """Whether it takes images, as far as it is known now."""
        ...

    @property
    def may_see(self) -> bool:
        """Whether loading it first would tell whether it takes images."""
        ...

    @property
    def window(self) -> int:
        """Tokens, 0 while it is not known."""
        ...

    @property
    def exact(self) -> bool:
        """Whether its tokens were counted by its own tokenizer, the last time they were."""
        ...

    async def load(self, view: Asker, cancel: Cancel, *, allow_switch: bool) -> None:
        """Make it resident. Raises the typed errors."""
        ...

    async def generate(
        self, params: api.TurnParams, on_event: Callable[[api.Event], None], cancel: Cancel, view: Asker
    ) -> api.TurnResult:
        """Answer once. Raises the typed errors."""
        ...

    async def hold(self, run: str) -> None:
        """Keep others from switching the model away while tools run; until cancelled."""
        ...

    async def count(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> api.CountResult:
        """Tokens of each message and of the whole, as it would be sent."""
        ...


class Tools(Protocol):
    """The tools of a turn. `schemas` has the chat-completion shape; empty when there are none.

    `elsewhere`: the editor runs the calls itself and sends their answers with its next turn.
    """

    schemas: list[dict[str, Any]]
    elsewhere: bool

    async def run(self, calls: Sequence[api.ToolCall]) -> bool:
        """Run the calls and record their answers. False ends the turn."""
        ...


class NoTools:
    """A turn without tools: a model that calls some nevertheless has ended its turn."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.elsewhere = False

    async def run(self, calls: Sequence[api.ToolCall]) -> bool:
        """See Tools."""
        del calls
        return False


class EditorTools:
    """Tools that the editor runs between two turns."""

    def __init__(self, schemas: list[dict[str, Any]]) -> None:
        self.schemas = schemas
        self.elsewhere = True

    async def run(self, calls: Sequence[api.ToolCall]) -> bool:
        """See Tools: nothing is run here."""
        del calls
        return False
