"""A remote model as one turn sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acp_bridge.turn.context import estimate
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.models.picker import RemoteModel
    from acp_bridge.providers.client import ProviderClient
    from acp_bridge.turn.model.consent import Asker


class BoundRemote:
    """Implements `acp_bridge.turn.interfaces.Model`."""

    may_see = False

    def __init__(self, client: ProviderClient, model: RemoteModel) -> None:
        self.name = model.id
        self.window = model.context
        self.supports_images = model.vision
        self._client = client

    async def load(self, view: Asker, cancel: Cancel, *, allow_switch: bool) -> None:
        """Nothing has to be loaded."""
        del view, cancel, allow_switch

    async def generate(
        self, params: api.TurnParams, on_event: Callable[[api.Event], None], cancel: Cancel, view: Asker
    ) -> api.TurnResult:
        """See Model."""
        del view
        return await self._client.turn(params, on_event, cancel)

    async def hold(self, run: str) -> None:
        """Nothing is held: others cannot take a remote model away."""
        del run

    async def count(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> api.CountResult:
        """An estimate on the safe side: the endpoint has no method for it."""
        each = [estimate([message]) for message in messages]
        return api.CountResult(each=each, total=sum(each) + len(str(tools)) // 3)
