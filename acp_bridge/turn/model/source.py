"""From a name to what answers under it: strict, healed once, never another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.models.picker import NOTHING, RemoteModel, current_model, is_remote, nothing_reason
from acp_bridge.models.resolve import resolve, resolve_healed
from acp_bridge.turn.model.local import BoundLocal
from shared.errors import ResolutionMiss

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.models.view import Models
    from acp_bridge.providers.registry import Providers
    from acp_bridge.turn.interfaces import Model
    from acp_bridge.turn.model.consent import LocalModel
    from shared.protocol import api
    from shared.settings import Settings


class ModelSource:
    """The local models and the remote ones, as turns ask for them."""

    def __init__(
        self, models: Models, daemon: Daemon, local: LocalModel, providers: Providers, settings: Settings
    ) -> None:
        self._models = models
        self._daemon = daemon
        self._local = local
        self._providers = providers
        self._settings = settings

    def wanted(self, pick: str, named: str = "") -> str:
        """The model that a request `named`, else the pick, else the local default, else NOTHING."""
        return named or current_model(pick, self._models.default)

    def meaning(self, pick: str, named: str = "") -> api.LibraryRow | RemoteModel:
        """What answers now. Raises NoAvailableModel, NoSatisfactoryModel, RemoteNotPicked."""
        models = self._models
        wanted = self.wanted(pick, named)
        reason = models.reason if wanted == NOTHING else models.missing(wanted)
        return resolve(wanted, pick, models.rows, models.remotes, reason)

    async def find(self, pick: str, named: str, cancel: Cancel) -> api.LibraryRow | RemoteModel:
        """What answers (see `wanted`). A cold library has its first look, a miss is healed once; what was wanted before
        that stays wanted.

        Raises the typed errors of a resolution, or why modeld is away; TurnCancelled.
        """
        wanted = self.wanted(pick, named)
        if is_remote(wanted):
            await cancel.race(self._providers.refresh)  # a provider that was removed gets nothing any more
        if not self._known(wanted):
            await cancel.race(lambda: self._models.first_look(wanted))
        fixed = "" if wanted == NOTHING else wanted
        try:
            return await cancel.race(lambda: resolve_healed(lambda: self.meaning(pick, fixed), self._models.reconcile))
        except ResolutionMiss:
            if self._daemon.connected or is_remote(wanted):
                raise
            away = self._daemon.detection.error()  # what is missing is modeld, not the model
            if wanted == NOTHING:
                away = type(away)(nothing_reason(away.message, self._models.remotes), **away.data)
            raise away from None

    def _known(self, name: str) -> bool:
        return self._models.found(name) is not None

    def bound(self, found: api.LibraryRow | RemoteModel) -> Model:
        """The model as one turn sees it."""
        if isinstance(found, RemoteModel):
            from acp_bridge.turn.model.remote import BoundRemote

            return BoundRemote(self._providers, found)
        return self.local(found)

    def local(self, row: api.LibraryRow) -> BoundLocal:
        """A local model as one turn sees it."""
        return BoundLocal(self._local, self._daemon, self._settings, row)
