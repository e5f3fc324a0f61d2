"""What stands behind the HTTP face: the models, and one connection to modeld for each program that asks.

A program is known by its user agent (the key is one). It has a connection of its own, since modeld's queue is fair
between connections: ten requests of one program delay an editor as one does.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from acp_bridge.daemon.client import Daemon
from acp_bridge.faces.http.metrics import Counters
from acp_bridge.models.picker import is_remote
from acp_bridge.models.resolve import resolve, resolve_healed
from acp_bridge.turn.model.consent import LocalModel
from acp_bridge.turn.model.holds import Holds
from acp_bridge.turn.model.source import ModelSource
from shared.errors import LookupFailed, ModeldError, ModelNotFound, NoSatisfactoryModel, QueueFull
from shared.text.shown import one_line
from shared.text.words import NOT_IN_LIBRARY

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.models.picker import RemoteModel
    from acp_bridge.models.view import Models
    from acp_bridge.providers.registry import Providers
    from shared.clock import Clock
    from shared.protocol import api
    from shared.settings import Settings

#: Programs at once; past it the one that was silent longest is forgotten.
MOST_PROGRAMS = 32
#: A program that has been silent for so long has gone. A switch asks for longer than `switch_asks_within`, so that its
#: last turn still counts.
SILENT_S = 300.0
NAME_LENGTH = 60
#: A turn that nobody has measured yet takes about this long.
USUAL_TURN_S = 5.0

MakeDaemon = Callable[[str], Daemon]


class Program:
    """One program: its connection, and what turns need. `uses` counts the requests that run."""

    def __init__(self, name: str, daemon: Daemon, gateway: Gateway) -> None:
        self.name = name
        self.daemon = daemon
        self.local = LocalModel(daemon, gateway.settings, gateway.clock)
        self.source = ModelSource(gateway.models, daemon, self.local, gateway.providers, gateway.settings)
        self.holds = Holds()
        self.fills = anyio.Lock()  # modeld drops a client's older fill for its newer: here each has its answer
        self.uses = 0
        self.last = time.monotonic()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        """Keep the connection until `scope` is cancelled."""
        with self.scope:
            async with anyio.create_task_group() as group:
                self.holds.group = group
                await self.daemon.run()


class Gateway:
    """The composition behind the endpoints. `remote` are the models of other machines that the user named."""

    def __init__(
        self,
        *,
        make_daemon: MakeDaemon,
        models: Models,
        daemon: Daemon,
        providers: Providers,
        settings: Settings,
        clock: Clock,
        remote: frozenset[str] = frozenset(),
        switch: bool = False,
    ) -> None:
        self.models = models
        self.daemon = daemon
        self.providers = providers
        self.settings = settings
        self.clock = clock
        self.remote = remote
        self.switch = switch
        self.cancels: set[Cancel] = set()
        self.counters = Counters()
        self._make_daemon = make_daemon
        self._programs: dict[str, Program] = {}
        self._group: anyio.abc.TaskGroup | None = None
        models.remote_missing = providers.missing
        models.remote_look = providers.first_look

    async def run(self) -> None:
        """Keep the view of the models and the connections, until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self.daemon.run)
            group.start_soon(self.models.run)
            if self.remote:
                group.start_soon(self.providers.run, self._remotes_changed)
            while True:
                await anyio.sleep(SILENT_S / 5)
                self._forget_silent()

    def _remotes_changed(self) -> None:
        self.models.remotes = tuple(one for one in self.providers.models() if one.id in self.remote)

    # --- programs ------------------------------------------------------------------------------

    @asynccontextmanager
    async def program(self, agent: str) -> AsyncIterator[Program]:
        """The program of this user agent, for one request. Raises QueueFull where too many run at once."""
        name = one_line(agent.strip(), NAME_LENGTH) or "an HTTP client"
        found = self._programs.get(name)
        if found is None:
            self._make_room()
            assert self._group is not None
            found = self._programs[name] = Program(name, self._make_daemon(f"{name} (HTTP)"), self)
            self._group.start_soon(found.run)
            await anyio.lowlevel.checkpoint()  # its connection is kept from now on
        found.uses += 1
        try:
            yield found
        finally:
            found.uses -= 1
            found.last = time.monotonic()

    def _make_room(self) -> None:
        if len(self._programs) < MOST_PROGRAMS:
            return
        silent = [one for one in self._programs.values() if not one.uses]
        if not silent:
            raise QueueFull(position=MOST_PROGRAMS + 1, waited_s=0.0)
        self._forget(min(silent, key=lambda one: one.last))

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for one in list(self._programs.values()):
            if not one.uses and now - one.last > SILENT_S:
                self._forget(one)

    def _forget(self, program: Program) -> None:
        del self._programs[program.name]
        program.scope.cancel()

    def stop(self) -> None:
        """End everything that runs for a client."""
        for cancel in list(self.cancels):
            cancel.request()

    # --- models --------------------------------------------------------------------------------

    async def row(self, name: str) -> api.LibraryRow | RemoteModel:
        """What answers under exactly this name. Raises ModelNotFound with near names, or why there is none now."""
        if name in self.remote or not is_remote(name):
            await self.models.first_look(name)
            try:
                return await resolve_healed(lambda: self._known(name), self.models.reconcile)
            except LookupFailed as error:
                if not self.daemon.connected and not self.models.rows and not is_remote(name):
                    raise self.daemon.detection.error() from error
                raise self._unknown(name, error) from error
        raise self._unknown(name, None)

    def _known(self, name: str) -> api.LibraryRow | RemoteModel:
        models = self.models
        return resolve(
            name, name, models.rows, models.remotes, models.missing(name) if models.row(name) is None else ""
        )

    def _unknown(self, name: str, error: ModeldError | None) -> ModeldError:
        """A name that was never here, with those that are near; another error stays what it is."""
        if isinstance(error, NoSatisfactoryModel) and error.reason != NOT_IN_LIBRARY:
            return error
        if error is not None and not isinstance(error, NoSatisfactoryModel):
            return error
        from shared.catalog.names import nearest  # only for a mistake

        near = nearest(name, self.names())
        shown = one_line(name, 80)
        if near:
            return ModelNotFound(requested=shown, near=near)
        return ModelNotFound(f"no model named {shown}; GET /v1/models lists them", requested=shown, near=near)

    def names(self) -> list[str]:
        """Every name that a request may have."""
        return [row.name for row in self.models.rows] + [one.id for one in self.models.remotes]

    def wait_s(self) -> float:
        """How long what waits and runs now will take, by the length of the last turn."""
        status = self.daemon.status
        if status is None:
            return 0.0
        last = status.last_turn
        usual = USUAL_TURN_S if last is None else last.timings.first_token_s + last.timings.decode_s
        ahead = len(status.queue) + (1 if status.busy is not None else 0)
        passed = status.busy.age_s if status.busy is not None else 0.0
        return max(0.0, ahead * usual - min(passed, usual))
