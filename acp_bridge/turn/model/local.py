"""A local model as one turn sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from shared.errors import DaemonError, ModeldError
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.turn.model.consent import Asker, LocalModel
    from shared.settings import Settings

#: The release of a hold may take this long; it ends by itself too.
HOLD_END_S = 0.5


class BoundLocal:
    """Implements `acp_bridge.turn.interfaces.Model`."""

    exact = True

    def __init__(self, local: LocalModel, daemon: Daemon, settings: Settings, row: api.LibraryRow) -> None:
        self.name = row.name
        self._vision = row.vision
        self._local = local
        self._daemon = daemon
        self._settings = settings

    @property
    def window(self) -> int:
        """Tokens of the resident window, 0 while the model is not loaded."""
        active = self._active
        return 0 if active is None else active.num_ctx

    @property
    def supports_images(self) -> bool:
        """Whether its files and the engine that runs it take images; known once it is loaded."""
        active = self._active
        return self._vision and active is not None and bool(active.capabilities.get("vision"))

    @property
    def may_see(self) -> bool:
        """Whether loading it would tell more than is known."""
        return self._vision and self._active is None

    @property
    def _active(self) -> api.ActiveModel | None:
        status = self._daemon.status
        active = status.active if status is not None else None
        return active if active is not None and active.name == self.name else None

    async def load(self, view: Asker, cancel: Cancel, *, allow_switch: bool) -> None:
        """Make it resident, with the user's consent where another model has to go for it."""
        if allow_switch:
            await self._local.load(self.name, view, cancel)
        else:
            await self._local.load_alone(self.name, view, cancel)

    async def generate(
        self, params: api.TurnParams, on_event: Callable[[api.Event], None], cancel: Cancel, view: Asker
    ) -> api.TurnResult:
        """See Model."""
        return await self._local.generate(params, on_event, cancel, view)

    async def hold(self, run: str) -> None:
        """Count as a waiter for this model until cancelled. A courtesy: without it the turns still work."""
        params = api.HoldParams(model=self.name, run=run)
        try:
            while True:
                await self._daemon.call("run/hold", params, api.Value)
                await anyio.sleep(self._settings.hold_ttl / 3)
        except ModeldError:
            return
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(HOLD_END_S):
                await self._release(run)

    async def _release(self, run: str) -> None:
        try:
            await self._daemon.tell("run/hold", api.HoldParams(model=self.name, run=run, release=True))
        except ModeldError:
            return  # it ends with its ttl

    async def count(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> api.CountResult:
        """Tokens under the model's own template. Waits for a modeld that restarts, as the turn itself does."""
        params = api.CountParams(model=self.name, messages=messages, tools=tools)
        deadline = anyio.current_time() + self._settings.gap_wait
        while True:
            try:
                return await self._daemon.call("model/count", params, api.CountResult)
            except DaemonError as error:
                if not error.retryable or anyio.current_time() >= deadline:
                    raise
            await anyio.sleep(self._settings.away_check / 5)
