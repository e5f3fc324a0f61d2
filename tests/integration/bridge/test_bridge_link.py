"""The one connection of a bridge to modeld: when it counts as lost."""

from __future__ import annotations

import anyio
import pytest

from acp_bridge.daemon.client import Daemon
from acp_bridge.daemon.locate import Detection
from bridge_fakes import Bench, running
from shared.clock import SystemClock
from shared.errors import DaemonNotRunning
from shared.protocol import api
from shared.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.anyio]


async def test_a_connection_that_ended_before_it_was_watched_is_lost(bench: Bench) -> None:
    """A call dialled while the keeper of the connection slept, and modeld went before the keeper woke."""
    asleep = Settings(away_check=3600.0)
    daemon = Daemon(bench.records.dialler(), asleep, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    heard: list[bool] = []
    daemon.on_change(lambda: heard.append(daemon.connected))
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run)
        await daemon.looked.wait()
        await anyio.wait_all_tasks_blocked()  # it found nobody, and sleeps
        async with running(bench) as modeld:
            link = await daemon.link()
            assert daemon.connected
            assert daemon.status == modeld.status
            modeld.close()
            await link.peer.closed.wait()
        assert daemon.connected, "nobody has watched it end"
        heard.clear()
        bench.records.detection = Detection(state="not_running", stopped=True)
        with pytest.raises(DaemonNotRunning):
            await daemon.link()
        assert not daemon.connected
        assert daemon.status is None
        assert heard[0] is False, "told before anybody was looked for"
        group.cancel_scope.cancel()


async def test_behind_a_connection_that_ended_unwatched_the_next_modeld_is_found(bench: Bench) -> None:
    asleep = Settings(away_check=3600.0)
    daemon = Daemon(bench.records.dialler(), asleep, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run)
        await daemon.looked.wait()
        await anyio.wait_all_tasks_blocked()
        links = []
        for _ in range(2):
            async with running(bench) as modeld:
                links.append(await daemon.link())
                assert daemon.status == modeld.status
                modeld.close()
                await links[-1].peer.closed.wait()
        assert links[0] is not links[1]
        group.cancel_scope.cancel()
