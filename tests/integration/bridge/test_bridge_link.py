"""The one connection of a bridge to modeld: when it counts as lost."""

from __future__ import annotations

import anyio
import pytest

from acp_bridge.daemon import client
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


async def test_the_first_looks_behind_a_lost_connection_come_soon(bench: Bench) -> None:
    """The connection of a killed modeld ends before its process has: what the records say changes a moment later."""
    asleep = Settings(away_check=3600.0)
    daemon = Daemon(bench.records.dialler(), asleep, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    seen: list[str] = []
    told = anyio.Event()

    def changed() -> None:
        seen.append(daemon.detection.state)
        if seen[-1] == "restarting":
            told.set()

    daemon.on_change(changed)
    async with anyio.create_task_group() as group:
        async with running(bench) as modeld:
            group.start_soon(daemon.run)
            while not daemon.connected:
                await anyio.sleep(0)
            seen.clear()
            bench.records.detection = Detection(state="running")  # its process still stands there
            modeld.close()
            while len(seen) < 2:  # it is lost, and nobody answers
                await anyio.sleep(0)
            assert seen == ["running", "running"]
        bench.records.detection = Detection(state="restarting", last_seen=0.0)
        with anyio.fail_after(10):
            await told.wait()
        group.cancel_scope.cancel()


async def test_a_modeld_that_did_not_answer_at_first_is_dialled_again_soon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has just begun on a busy machine; its records do not move any more."""
    monkeypatch.setattr(client, "REDIAL_S", 3600.0)
    brief = Settings(dial_timeout=0.05, away_check=0.02)
    daemon = Daemon(bench.records.dialler(), brief, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    async with running(bench) as modeld, anyio.create_task_group() as group:
        modeld.hung = True
        failures: list[str] = []
        daemon.on_change(lambda: failures.append(daemon.detection.state))
        group.start_soon(daemon.run)
        with anyio.fail_after(15):
            while failures.count("unreachable") < 3:
                await anyio.sleep(0.005)
            modeld.hung = False
            while not daemon.connected:
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
