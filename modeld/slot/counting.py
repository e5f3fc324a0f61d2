"""Counting tokens: beside a decode in the resident worker, else in a short-lived helper without weights.

A helper never takes the slot, never counts as use, and goes when nobody counted for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from modeld.pipe.messages import Count, Load
from modeld.slot.request import identity_of, require_servable
from shared.errors import EngineFailed
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.host.worker_host import WorkerHost
    from modeld.slot.worker_supervisor import StartWorker
    from shared.catalog.entry import ModelEntry
    from shared.settings import Settings

#: Seconds a helper is kept for the next count.
KEEP_SECONDS = 30.0


class Counter:
    """`model/count`. At most one helper lives. `resident` gives the worker that has a model in memory."""

    def __init__(
        self,
        settings: Settings,
        backend: str,
        resident: Callable[[ModelEntry], WorkerHost | None],
        start_worker: StartWorker,
        spawn: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._resident = resident
        self._start_worker = start_worker
        self._spawn = spawn
        self._helper: WorkerHost | None = None
        self._digest = ""
        self._lock = anyio.Lock()
        self._scope: anyio.CancelScope | None = None

    async def count(self, entry: ModelEntry, params: api.CountParams) -> api.CountResult:
        """Raises BackendMismatch, ModelLoadFailed, TemplateFailed, EngineFailed."""
        resident = self._resident(entry)
        if resident is not None:
            return await _ask(resident, params)
        require_servable(entry, self._backend)
        async with self._lock:
            helper = await self._helper_for(entry)
            try:
                return await _ask(helper, params)
            except EngineFailed:
                self._helper = None
                raise
            finally:
                self._keep(helper)

    async def _helper_for(self, entry: ModelEntry) -> WorkerHost:
        if self._helper is not None and self._digest == entry.digest and not self._helper.exited.is_set():
            return self._helper
        await self.close()
        host = await self._start_worker()
        ready = False
        try:
            await host.imported()
            message = Load(
                turn=host.next_turn(),
                identity=identity_of(entry, api.LoadConfig(), self._backend),
                model=entry.facts(),
                num_ctx=self._settings.least_context,
                template_deadline=self._settings.template_deadline,
                vocabulary_only=True,
            )
            await host.load(message, lambda fraction: None)
            ready = True
        finally:
            if not ready:
                with anyio.CancelScope(shield=True):
                    await host.close(0)
        self._helper, self._digest = host, entry.digest
        return host

    def _keep(self, helper: WorkerHost) -> None:
        """Close it after a while without a count."""
        if self._scope is not None:
            self._scope.cancel()
        scope = self._scope = anyio.CancelScope()
        self._spawn(self._close_later(helper, scope))

    async def _close_later(self, helper: WorkerHost, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(KEEP_SECONDS)
            async with self._lock:
                if helper is self._helper:
                    self._helper = None
                await helper.close(1.0)

    async def close(self) -> None:
        """End the helper, if one lives."""
        helper, self._helper = self._helper, None
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
        if helper is not None:
            with anyio.CancelScope(shield=True):
                await helper.close(0)


async def _ask(host: WorkerHost, params: api.CountParams) -> api.CountResult:
    message = Count(turn=host.next_turn(), messages=params.messages, tools=params.tools, text=params.text)
    counted = await host.count(message)
    return api.CountResult(each=counted.each, total=counted.total)
