"""The bridge without a face: its parts, wired. A face is attached and shows what happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from acp_bridge.conversations.events import OptionsChanged
from acp_bridge.core.audience import Audience
from acp_bridge.core.conversations import Conversations
from acp_bridge.core.selection import Selection
from acp_bridge.core.turns import Turns
from acp_bridge.turn.model.consent import LocalModel
from acp_bridge.turn.model.holds import Holds
from acp_bridge.turn.model.source import ModelSource
from acp_bridge.turn.switched import ActiveModelWatch

if TYPE_CHECKING:
    from acp_bridge.conversations.store import Claimant, Store
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.models.view import Models
    from acp_bridge.providers.registry import Providers
    from shared.clock import Clock
    from shared.settings import Settings


class Core:
    """Everything behind a face: `conversations`, `selection` (what was picked), `turns`, and what they stand on.

    `run` keeps what runs beside the calls.
    """

    def __init__(
        self,
        *,
        store: Store,
        daemon: Daemon,
        models: Models,
        settings: Settings,
        clock: Clock,
        claimant: Callable[[], Claimant],
        providers: Providers,
        upgraded: Callable[[], str] = lambda: "",
        problems: Sequence[str] = (),
    ) -> None:
        self.store = store
        self.daemon = daemon
        self.models = models
        self.settings = settings
        self.clock = clock
        self.providers = providers
        self.audience = Audience()
        self.local = LocalModel(daemon, settings, clock)
        self.source = ModelSource(models, daemon, self.local, providers, settings)
        self.holds = Holds()
        self.selection = Selection(store, models, settings, clock)
        self.conversations = Conversations(
            store=store,
            settings=settings,
            clock=clock,
            claimant=claimant,
            audience=self.audience,
            until_known=lambda recalled: models.until_known(recalled, providers.known),
        )
        self.turns = Turns(
            conversations=self.conversations,
            selection=self.selection,
            audience=self.audience,
            source=self.source,
            local=self.local,
            holds=self.holds,
            daemon=daemon,
            models=models,
            providers=providers,
            store=store,
            upgraded=upgraded,
            problems=problems,
        )
        self._active = ActiveModelWatch()
        models.remote_missing = providers.missing
        models.remote_look = providers.first_look
        models.on_change(self._models_changed)
        daemon.on_change(self._status_changed)

    async def run(self) -> None:
        """Keep the daemon's connection, the view of the models and the claims, until cancelled."""
        async with anyio.create_task_group() as group:
            self.holds.group = self.conversations.group = self.turns.group = group
            group.start_soon(self.daemon.run)
            group.start_soon(self.models.run)
            group.start_soon(self.conversations.run)
            group.start_soon(self.providers.run, self.remotes_changed)

    def close(self) -> None:
        """Write what is left, give the claims up. Bounded."""
        self.conversations.settle()
        self.store.close()

    # --- what moves by itself ------------------------------------------------------------------

    def remotes_changed(self) -> None:
        """Show what the providers list now."""
        self.models.remotes = self.providers.models()
        self._models_changed()

    def _models_changed(self) -> None:
        if self.audience.attached:
            for live in self.conversations:
                self.audience.show(live, OptionsChanged())

    def _status_changed(self) -> None:
        """Notice that another client replaced the model of a conversation here; it is reported once."""
        status = self.daemon.status
        replaced = self._active.see(status) if status is not None else None
        if replaced is None:
            return
        for live in self.conversations:
            if replaced.concerns(live.last_model, busy=live.busy, me=self.audience.client_name):
                live.missed = replaced.text()
                live.last_model = ""
