"""The composition root of a bridge process: the objects, wired; and the life of the process."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import anyio

from acp_bridge.acp.server import AcpServer
from acp_bridge.core import Core
from acp_bridge.daemon.client import Daemon
from acp_bridge.daemon.records import Records, records_dialler
from acp_bridge.inventory import RecordedInventory
from acp_bridge.models import Models
from acp_bridge.session.store import Claimant, Store
from shared.clock import SystemClock
from shared.endpoint.stdio import stdio_stream
from shared.paths import config_file, data_root
from shared.protocol import api
from shared.settings import load_settings
from shared.version import __version__

if TYPE_CHECKING:
    from shared.paths import DataRoot
    from shared.settings import Settings

#: How often the parent is looked for: an editor that was killed may leave its end of the pipe to another process.
PARENT_CHECK_S = 5.0


class App:
    """One bridge: everything behind the face, made but not running."""

    def __init__(self, root: DataRoot, settings: Settings) -> None:
        clock = SystemClock()
        self.settings = settings
        self.store = Store(root.bridge_database, same_process)
        records = Records(root, settings)
        self.daemon = Daemon(records_dialler(records), settings, clock, self._client)
        self.models = Models(RecordedInventory(root, settings, records), self.daemon, settings, clock)
        self.core = Core(
            store=self.store,
            daemon=self.daemon,
            models=self.models,
            settings=settings,
            clock=clock,
            claimant=self._claimant,
        )
        self._token: str | None = None

    def _client(self) -> api.ClientInfo:
        """How modeld names this client to others."""
        return api.ClientInfo(name=self.core.client_name, version=__version__, pid=os.getpid())

    def _claimant(self) -> Claimant:
        from shared.lease.identity import start_token

        if self._token is None:
            self._token = start_token(os.getpid()) or ""
        return Claimant(pid=os.getpid(), token=self._token, holder=self.core.client_name)


def same_process(pid: int, token: str) -> bool:
    """Whether the process that made a claim still lives."""
    from shared.lease import identity

    return identity.same_process(pid, token)


def serve_acp(source: int, output: int) -> int:
    """Serve ACP on two descriptors until the editor goes; gives the exit code."""
    settings = load_settings(file=config_file())
    app = App(data_root(), settings)
    anyio.run(_serve, app, source, output)
    app.core.close()
    return 0


async def _serve(app: App, source: int, output: int) -> None:
    server = AcpServer(app.core, app.settings)
    async with anyio.create_task_group() as group:
        group.start_soon(_watch_signals, server)
        group.start_soon(_watch_parent, server)
        await server.serve(stdio_stream(output, source))
        group.cancel_scope.cancel()


async def _watch_signals(server: AcpServer) -> None:
    if sys.platform == "win32":
        return  # there are no signals to wait for; the editor closes the pipe or ends the process
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            server.stop()
            return


async def _watch_parent(server: AcpServer) -> None:
    parent = os.getppid()
    while True:
        await anyio.sleep(PARENT_CHECK_S)
        if os.getppid() != parent:
            server.stop()
            return
