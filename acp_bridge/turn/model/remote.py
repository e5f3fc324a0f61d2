"""A remote model as one turn sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.models.picker import RemoteModel
    from acp_bridge.providers.registry import Providers
    from acp_bridge.turn.model.consent import Asker


class BoundRemote:
    """Implements `acp_bridge.turn.interfaces.Model`. Each request goes by the config file as it is then."""

    may_see = False

    def __init__(self, providers: Providers, model: RemoteModel) -> None:
        self.name = model.id
        self.supports_images = model.vision
        self.exact = False
        self._model = model
        self._providers = providers

    @property
    def window(self) -> int:
        """Tokens: as listed, or as the endpoint said in a refusal. 0 while nobody said."""
        return self._providers.window(self._model)

    async def load(self, view: Asker, cancel: Cancel, *, allow_switch: bool) -> None:
        """Do nothing: a remote model needs no load."""
        del view, cancel, allow_switch

    async def generate(
        self, params: api.TurnParams, on_event: Callable[[api.Event], None], cancel: Cancel, view: Asker
    ) -> api.TurnResult:
        """See Model. Raises NoSatisfactoryModel when its provider was removed meanwhile."""
        client = await cancel.race(lambda: self._providers.client(self.name))
        return await client.turn(params, on_event, cancel, view.waiting)

    async def hold(self, run: str) -> None:
        """Do nothing: others cannot take a remote model away."""
        del run

    async def count(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> api.CountResult:
        """By the server's own tokenizer, else by what its answers have counted."""
        client = await self._providers.client(self.name)
        counted, self.exact = await client.count(self.name, messages, tools)
        return counted
