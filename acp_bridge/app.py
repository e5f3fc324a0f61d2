"""The composition root of a bridge process: the life of the process, and a core made when it is needed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio

from acp_bridge.process.process_exit import end_when_stuck, stop_at_signals, stop_with_parent
from shared.diagnosis.defect import DefectHandler
from shared.endpoint.stdio import stdio_stream
from shared.errors import ModeldError
from shared.paths import config_file, data_root
from shared.settings import Settings, read_settings
from shared.text.console import guard_streams

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from acp_bridge.core.core import Core
    from acp_bridge.faces.http.gateway import Gateway
    from acp_bridge.faces.http.options import HttpOptions
    from shared.paths import DataRoot


def make_core(
    root: DataRoot,
    settings: Settings,
    client: Callable[[], str] | None = None,
    problems: Sequence[ModeldError] = (),
) -> Core:
    """Everything behind a face, wired and not yet running. `client` names the editor for others; without it the face
    that is attached does. `problems` of the settings are told in the first conversation.
    """
    from acp_bridge.conversations.store import Claimant, Store
    from acp_bridge.core.core import Core
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.daemon.records import Records, records_dialler
    from acp_bridge.models.inventory import RecordedInventory
    from acp_bridge.models.view import Models
    from acp_bridge.providers.listcache import FILE_NAME, ListCache
    from acp_bridge.providers.registry import Providers
    from shared.clock import SystemClock
    from shared.diagnosis.installed import ImportGuard, Installed
    from shared.lease.process import identity
    from shared.protocol import api
    from shared.version import __version__

    clock = SystemClock()
    pid = os.getpid()
    token = identity.start_token(pid) or ""
    records = Records(root, settings)
    faces: list[Core] = []

    def name() -> str:
        return client() if client is not None else faces[0].audience.client_name

    daemon = Daemon(
        records_dialler(records),
        settings,
        clock,
        lambda: api.ClientInfo(name=name(), version=__version__, pid=pid),
    )
    installed = Installed()
    ImportGuard(installed, ("acp_bridge", "shared")).stand()
    core = Core(
        store=Store(root.bridge_database, identity.same_process),
        daemon=daemon,
        models=Models(RecordedInventory(root, settings, records), daemon, settings, clock),
        settings=settings,
        clock=clock,
        providers=Providers(config_file(), ListCache(root.path / FILE_NAME)),
        claimant=lambda: Claimant(pid=pid, token=token, holder=name()),
        upgraded=installed.changed,
        problems=[problem.message for problem in problems],
    )
    faces.append(core)
    return core


def serve_acp(source: int, output: int) -> int:
    """Serve ACP on two descriptors until the editor goes; gives the exit code."""
    from acp_bridge.faces.acp.server import AcpServer

    guard_streams()
    surroundings = _surroundings()

    def core() -> Core:
        root, settings, problems = surroundings
        assert root is not None
        return make_core(root, settings, problems=problems)

    root, settings, problems = surroundings
    server = AcpServer(core, settings, problems[0] if root is None else None)
    anyio.run(_serve, server, source, output)
    return 0


def serve_lsp(source: int, output: int) -> int:
    """Serve LSP on two descriptors until the editor goes; gives the exit code."""
    from acp_bridge.faces.lsp.server import LspServer

    guard_streams()
    root, settings, problems = _surroundings()

    if root is None:
        raise problems[0]

    def core_of(client: Callable[[], str]) -> Core:
        return make_core(root, settings, client, problems)

    server = LspServer(core_of, root, settings, [problem.message for problem in problems])
    anyio.run(_serve, server, source, output)
    return server.exit_code


def make_gateway(root: DataRoot, settings: Settings, options: HttpOptions) -> Gateway:
    """Everything behind the HTTP face, wired and not yet running: no conversations are kept."""
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.daemon.records import Records, records_dialler
    from acp_bridge.faces.http.gateway import Gateway
    from acp_bridge.models.inventory import RecordedInventory
    from acp_bridge.models.view import Models
    from acp_bridge.providers.listcache import FILE_NAME, ListCache
    from acp_bridge.providers.registry import Providers
    from shared.clock import SystemClock
    from shared.protocol import api
    from shared.version import __version__

    clock = SystemClock()
    records = Records(root, settings)

    def make_daemon(name: str) -> Daemon:
        who = api.ClientInfo(name=name, version=__version__, pid=os.getpid())
        return Daemon(records_dialler(records), settings, clock, lambda: who)

    daemon = make_daemon("acp-bridge http")
    return Gateway(
        make_daemon=make_daemon,
        models=Models(RecordedInventory(root, settings, records), daemon, settings, clock),
        daemon=daemon,
        providers=Providers(config_file(), ListCache(root.path / FILE_NAME)),
        settings=settings,
        clock=clock,
        remote=frozenset(options.remote),
        switch=options.switch,
    )


def serve_http(options: HttpOptions) -> int:
    """Serve programs until a signal; gives the exit code. Raises the typed errors of the start."""
    from acp_bridge.faces.http.process import HttpProcess

    guard_streams()
    root = data_root()
    settings, problems = read_settings(file=config_file())
    for problem in problems:
        sys.stderr.write(f"acp-bridge: {problem.message}\n")
    process = HttpProcess(make_gateway(root, settings, options), options, root)
    anyio.run(process.run)
    return 0


def _surroundings() -> tuple[DataRoot | None, Settings, list[ModeldError]]:
    """Data root and settings, and what is wrong with them: reported to the editor, which would only see a process that
    dies. A setting that cannot be used costs itself; without a root (None) nothing works.
    """
    try:
        root = data_root()
        settings, problems = read_settings(file=config_file())
    except ModeldError as error:
        return None, Settings(), [error]
    return root, settings, list(problems)


class Server(Protocol):
    """A face as the process runs it."""

    async def serve(self, stream: ByteStream) -> None:
        """Until the editor closes its side, or `stop`."""
        ...

    def stop(self) -> None:
        """End the connection from this side."""
        ...

    def close(self) -> None:
        """Write what is left, after `serve`. Bounded."""
        ...


async def _serve(server: Server, source: int, output: int) -> None:
    DefectHandler("acp-bridge").stand()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(stop_at_signals, server.stop)
            group.start_soon(stop_with_parent, server.stop)
            stuck = partial(end_when_stuck, asyncio.get_running_loop())
            await server.serve(stdio_stream(output, source, stuck))
            group.cancel_scope.cancel()
    finally:
        server.close()
