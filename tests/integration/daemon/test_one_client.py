"""One way to modeld: a bridge and a command meet the same fault with the same typed error."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from acp_bridge.daemon.client import Daemon, Dialler
from bridge_fakes import TOKEN, FakeDaemon
from modeld.client import Connection
from shared.client.link import dial, read_token
from shared.client.locate import Detection, Target
from shared.clock import SystemClock
from shared.errors import DaemonError, DaemonRestarting, DaemonUnreachable
from shared.protocol import api
from shared.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
Settled = Callable[[Target, Settings], Awaitable[api.Status]]


async def by_command(target: Target, settings: Settings) -> api.Status:
    """As `modeld status` does."""
    async with await Connection.open(target, settings) as connection:
        return await connection.call("status", api.Fenced(), api.Status)


async def by_bridge(target: Target, settings: Settings) -> api.Status:
    """As an editor's bridge does."""
    statuses: list[api.Status] = []
    detection = Detection(state="running", targets=(target,))
    dialler = Dialler(detect=lambda: detection, change_key=lambda: 0, connect=dial, read_token=read_token)
    daemon = Daemon(dialler, settings, SystemClock(), lambda: api.ClientInfo(name="tester"))
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run)
        try:
            statuses.append(await daemon.call("status", api.Fenced(), api.Status))
        finally:
            group.cancel_scope.cancel()
    return statuses[0]


@pytest.fixture(params=[by_command, by_bridge])
def ask(request: pytest.FixtureRequest) -> Settled:
    """One client after the other."""
    client: Settled = request.param
    return client


def target(address: str, token_file: Path) -> Target:
    return Target(instance="i", address=address, token_file=str(token_file), pid=0, owner=True)


async def refused(ask: Settled, where: Target) -> DaemonError:
    """The one error that the client ends with."""
    with pytest.raises((DaemonError, BaseExceptionGroup)) as caught:
        await ask(where, Settings(dial_timeout=0.3))
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, DaemonError)
    return error


async def test_a_socket_without_a_listener(short_tmp: Path, ask: Settled) -> None:
    (short_tmp / "token").write_text(TOKEN)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(short_tmp / "s"))
    bound.close()
    error = await refused(ask, target(f"unix:{short_tmp}/s", short_tmp / "token"))
    assert isinstance(error, DaemonRestarting)
    assert error.hint == "nobody listens at its address any more"


async def test_a_socket_that_is_not_there(short_tmp: Path, ask: Settled) -> None:
    (short_tmp / "token").write_text(TOKEN)
    error = await refused(ask, target(f"unix:{short_tmp}/none", short_tmp / "token"))
    assert isinstance(error, DaemonUnreachable)
    assert "a sandboxed editor may not see it" in error.hint


async def test_a_token_that_is_gone(short_tmp: Path, ask: Settled) -> None:
    error = await refused(ask, target(f"unix:{short_tmp}/none", short_tmp / "token"))
    assert (type(error), error.hint) == (DaemonRestarting, "its token is gone")


async def test_an_answer_and_its_errors(short_tmp: Path, ask: Settled) -> None:
    """The control: the same two clients with a daemon that is there, and one that answers in another shape."""
    (short_tmp / "run").mkdir(mode=0o700)
    (short_tmp / "token").write_text(TOKEN)
    daemon = FakeDaemon(short_tmp / "run")
    where = target(daemon.target.address, short_tmp / "token")
    where = Target(instance=daemon.instance, address=where.address, token_file=where.token_file, pid=0, owner=True)
    settings = Settings()
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.serve)
        assert (await ask(where, settings)).instance == daemon.instance
        assert daemon.methods[0] == "hello"
        daemon.answers["status"] = {"state": 7}
        error = await refused(ask, where)
        assert isinstance(error, DaemonUnreachable)
        assert "`modeld restart` makes both one version" in error.hint
        daemon.close()
        group.cancel_scope.cancel()
