"""The one connection of a bridge to modeld: when it counts as lost."""

from __future__ import annotations

import anyio
import pytest

from acp_bridge.cancel import Cancel
from acp_bridge.daemon import client
from acp_bridge.daemon.client import Daemon, Dialler
from bridge_fakes import Bench, pair, running, until_cancelled
from shared.client.locate import Detection, Target
from shared.clock import SystemClock
from shared.errors import DaemonNotRunning, DaemonRestarting, DaemonUnreachable
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
        assert heard[0] is False, "reported before anybody was looked for"
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
    reported = anyio.Event()

    def changed() -> None:
        seen.append(daemon.detection.state)
        if seen[-1] == "restarting":
            reported.set()

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
            await reported.wait()
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


async def test_a_wait_for_silent_instances_ends_with_the_gap_however_many_there_are() -> None:
    """Each is given the dial time, all of them together no more than the wait."""
    dialled: list[str] = []

    async def silent(target: Target, timeout: float) -> anyio.abc.ByteStream:
        dialled.append(target.instance)
        await anyio.sleep(timeout)
        raise DaemonUnreachable(hint="it does not answer", retryable=True)

    many = tuple(Target(instance=f"i{one}", address="a", token_file="", pid=1, owner=False) for one in range(30))
    dialler = Dialler(
        detect=lambda: Detection(state="running", targets=many), change_key=lambda: 0, connect=silent,
        read_token=lambda target: "secret",
    )  # fmt: skip
    brief = Settings(dial_timeout=0.1, gap_wait=0.3)
    daemon = Daemon(dialler, brief, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run)
        with pytest.raises(DaemonUnreachable) as failed:
            await daemon.wait(Cancel(), lambda title: None)
        assert failed.value.retryable
        assert len(dialled) < len(many)
        group.cancel_scope.cancel()


async def test_a_call_to_a_frozen_modeld_ends_typed_and_goes_to_its_successor(bench: Bench) -> None:
    brief = Settings(dial_timeout=0.1, away_check=0.02)
    daemon = Daemon(bench.records.dialler(), brief, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    asked = api.CountParams(model="alpha", messages=[])
    async with pair(bench) as (frozen, successor), anyio.create_task_group() as group:

        async def never(call: object) -> None:
            frozen.frozen = frozen.hung = True
            await anyio.sleep_forever()

        frozen.answers["model/count"] = never
        successor.count = api.CountResult(each=[], total=7)
        group.start_soon(daemon.run)
        with pytest.raises(DaemonUnreachable) as failed:
            await daemon.call("model/count", asked, api.CountResult)
        assert failed.value.retryable
        bench.attach(successor)
        assert (await daemon.call("model/count", asked, api.CountResult)).total == 7
        group.cancel_scope.cancel()


async def test_a_ping_that_is_late_does_not_end_the_turn_of_another_conversation(bench: Bench) -> None:
    """A busy modeld has the answer under way: closing its connection would throw it away."""
    brief = Settings(dial_timeout=0.05, gap_wait=0.2, away_check=0.02)
    daemon = Daemon(bench.records.dialler(), brief, SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
    began, first = anyio.Event(), Cancel()
    ended: list[api.TurnResult] = []
    async with running(bench) as modeld, anyio.create_task_group() as group:
        modeld.script = until_cancelled
        group.start_soon(daemon.run)

        async def turn() -> None:
            ended.append(
                await daemon.turn(api.TurnParams(model="alpha", messages=[]), lambda event: began.set(), first)
            )

        group.start_soon(turn)
        await began.wait()
        modeld.frozen = True
        with pytest.raises(DaemonUnreachable):
            await daemon.wait(Cancel(), lambda title: None)
        modeld.frozen = False
        await daemon.wait(Cancel(), lambda title: None)
        first.request()
        while not ended:
            await anyio.sleep(0.005)
        assert ended[0].finish_reason == "cancelled"
        assert ended[0].usage.generated == 3, "modeld's own end of it"
        group.cancel_scope.cancel()


async def test_a_turn_says_how_its_modeld_ended_though_the_process_stands_a_moment_longer_than_its_connection(
    bench: Bench,
) -> None:
    dialler = bench.records.dialler()
    looks: list[Detection] = []
    gone = Detection(state="restarting", last_seen=0.0, crashed=True)

    def looked() -> Detection:
        looks.append(bench.records.detection if len(looks) < 3 else gone)
        return looks[-1]

    async def nobody(target: Target, timeout: float) -> anyio.abc.ByteStream:
        raise DaemonUnreachable(hint="nobody listens", retryable=True)

    async with running(bench) as modeld, anyio.create_task_group() as group:
        modeld.script = until_cancelled
        daemon = Daemon(dialler, Settings(), SystemClock(), lambda: api.ClientInfo(name="tester", pid=1))
        group.start_soon(daemon.run)

        def began(event: api.Event) -> None:
            dialler.detect, dialler.connect = looked, nobody
            modeld.close()

        with pytest.raises(DaemonRestarting, match="modeld ended unexpectedly"):
            await daemon.turn(api.TurnParams(model="alpha", messages=[]), began, Cancel())
        assert looks[0].state == "running"
        group.cancel_scope.cancel()
