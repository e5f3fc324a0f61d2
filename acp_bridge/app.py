"""The composition root of a bridge process: the life of the process, and a core made when it is needed."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import anyio

from acp_bridge.acp.server import AcpServer
from shared.endpoint.stdio import stdio_stream
from shared.paths import config_file, data_root
from shared.settings import load_settings

if TYPE_CHECKING:
    from acp_bridge.core import Core
    from shared.paths import DataRoot
    from shared.settings import Settings

#: How often the parent is looked for; each look wakes an idle process.
PARENT_CHECK_S = 15.0


def make_core(root: DataRoot, settings: Settings) -> Core:
    """Everything behind a face, wired and not yet running."""
    from acp_bridge.core import Core
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.daemon.records import Records, records_dialler
    from acp_bridge.inventory import RecordedInventory
    from acp_bridge.models import Models
    from acp_bridge.providers.registry import Providers
    from acp_bridge.session.store import Claimant, Store
    from shared.clock import SystemClock
    from shared.lease import identity
    from shared.protocol import api
    from shared.version import __version__

    clock = SystemClock()
    pid = os.getpid()
    token = identity.start_token(pid) or ""
    records = Records(root, settings)
    faces: list[Core] = []

    def name() -> str:
        return faces[0].client_name

    daemon = Daemon(
        records_dialler(records),
        settings,
        clock,
        lambda: api.ClientInfo(name=name(), version=__version__, pid=pid),
    )
    core = Core(
        store=Store(root.bridge_database, identity.same_process),
        daemon=daemon,
        models=Models(RecordedInventory(root, settings, records), daemon, settings, clock),
        settings=settings,
        clock=clock,
        providers=Providers(config_file()),
        claimant=lambda: Claimant(pid=pid, token=token, holder=name()),
    )
    faces.append(core)
    return core


def serve_acp(source: int, output: int) -> int:
    """Serve ACP on two descriptors until the editor goes; gives the exit code."""
    settings = load_settings(file=config_file())
    root = data_root()
    anyio.run(_serve, AcpServer(lambda: make_core(root, settings), settings), source, output)
    return 0


async def _serve(server: AcpServer, source: int, output: int) -> None:
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_watch_signals, server)
            group.start_soon(_watch_parent, server)
            await server.serve(stdio_stream(output, source))
            group.cancel_scope.cancel()
    finally:
        server.close()


async def _watch_parent(server: AcpServer) -> None:
    """An editor that was killed may leave its end of the pipe to another process, which keeps it open."""
    parent = os.getppid()
    while True:
        await anyio.sleep(PARENT_CHECK_S)
        if os.getppid() != parent:
            server.stop()
            return


async def _watch_signals(server: AcpServer) -> None:
    if sys.platform == "win32":
        return  # there are no signals to wait for; the editor closes the pipe or ends the process
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            server.stop()
            return
