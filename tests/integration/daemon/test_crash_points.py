"""A daemon that is killed, frozen or asked to end at every labelled point of a load, a turn and an unload.

Another one stands beside it. Afterwards there is one owner, one worker and a sound database, and nothing is left
of the first; whoever was frozen does nothing on waking. `make soak` tries each point in each way, with the points of
the lease itself among them; otherwise each point of the work is tried in one way.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import traceback
from pathlib import Path

import anyio
import psutil
import pytest

from counts import FULL
from leaks import end_processes_of, processes_of
from modeld_process import Client, Modeld, is_alive, write_models, write_script
from shared.endpoint.faults import EndpointError
from shared.errors import DeviceBusy, ModeldError, NotOwner
from shared.lease.crashpoint import VARIABLE
from shared.lease.reader import survey
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import PeerGone
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(3600 if FULL else 400)]

SOURCES = [Path(__file__).parents[3] / folder for folder in ("modeld", "shared")]
WORK = [
    "load.asked", "slot.generation", "load.spawned", "load.allowed", "sent.load", "load.running", "load.loaded",
    "load.ready", "turn.confirmed", "turn.started", "sent.turn", "turn.event", "turn.done", "turn.ended",
    "unload.closing", "unload.closed",
]  # fmt: skip
LEASE = [
    "acquire.judged", "acquire.created", "acquire.confirmed", "worker.named", "renew.before", "renew.written",
    "release.before", "release.written",
]  # fmt: skip
HOW = ["kill", "stop", "term"]
#: Daemons of this many scenarios run at once.
AT_ONCE = 3
#: Bounds a step of a scenario on a machine that does other things too. Seconds.
PATIENCE = 60.0
#: Where nothing waits for a lease to run out, it need not be the shortest: a busy machine would lose it. Seconds.
TTLS = {"kill": "4", "term": "4", "stop": "1.5"}


def scenarios() -> list[tuple[str, str]]:
    if FULL:
        return [(point, how) for point in LEASE + WORK for how in HOW]
    return [(point, HOW[index % 3]) for index, point in enumerate(WORK)]


async def test_a_daemon_that_ends_or_freezes_at_any_point_is_followed(data_root: DataRoot) -> None:
    limit = anyio.Semaphore(AT_ONCE)
    failed: list[str] = []

    async def run(point: str, how: str) -> None:
        async with limit:
            try:
                await one_scenario(DataRoot(data_root.path / f"{point}-{how}"), point, how)
            except Exception:  # every other scenario still runs
                failed.append(f"{point}:{how}: {traceback.format_exc()}")

    async with anyio.create_task_group() as tasks:
        for point, how in scenarios():
            tasks.start_soon(run, point, how)
    assert not failed, "\n".join(failed)


def test_every_point_is_tried_and_described() -> None:
    import shared.lease.crashpoint as module

    code = "".join(path.read_text() for folder in SOURCES for path in folder.rglob("*.py"))
    marked = set(re.findall(r'crash_point\("([a-z.]+)"\)', code)) | {"sent.load", "sent.turn"}
    assert marked == {*WORK, *LEASE}
    assert set(re.findall(r"^    ([a-z]+\.[a-z]+) ", str(module.__doc__), re.MULTILINE)) == marked


async def one_scenario(root: DataRoot, point: str, how: str) -> None:
    root.path.mkdir(mode=0o700)
    write_models(root, "a")
    environ = {
        "MODELD_DATA_ROOT": str(root.path),
        "MODELD_LEASE_TTL": TTLS[how],
        **write_script(root.path, [{"pieces": ["x "] * 4}], token_s=0.002, load_s=0.02),
    }
    victim, other = Modeld(root, **{**environ, VARIABLE: f"{point}:{how}"}), Modeld(root, **environ)
    try:
        await victim.start(PATIENCE)
        await other.start(PATIENCE)
        await until_it_happened(victim, how)
        async with other.client() as client:
            await takes_over(client, root)
            await check(root, client.hello.instance, other)
            if how == "stop":
                os.kill(victim.pid, signal.SIGCONT)
                await woken_and_idle(victim)
                await check(root, client.hello.instance, other)
                assert (await turn(client)).finish_reason == "stop"
    finally:
        with anyio.CancelScope(shield=True):
            for one in (victim, other):
                if one.process is not None and one.process.poll() is None:
                    os.kill(one.pid, signal.SIGCONT)
                    await one.end(seconds=PATIENCE)
    said = victim.said.read_text() + other.said.read_text()
    assert "Traceback" not in said, said
    assert "defect" not in other.log(), other.log()
    left = end_processes_of(root.path)
    assert not left, f"left behind: {left}"


async def until_it_happened(victim: Modeld, how: str) -> None:
    """Drive a load, a turn, an unload and an end, until one of them meets the point."""
    process = victim.process
    assert process is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive, victim)
        await eventually(
            lambda: stopped(process.pid) if how == "stop" else process.poll() is not None, "the point", PATIENCE
        )
        tasks.cancel_scope.cancel()
    if how != "stop":
        assert process.poll() == (-signal.SIGKILL if how == "kill" else 0)


async def drive(victim: Modeld) -> None:
    """Each call ends with an answer, a typed error or the connection's end; nothing else may come out of it.

    Again and again: on a busy machine it may lose its lease before it comes to the point, and go on as another.
    """
    while True:
        try:
            async with victim.client() as client:
                await drive_once(client)
        except (EndpointError, AssertionError, OSError, ExceptionGroup):
            pass  # it has ended, or becomes another instance at this moment
        await anyio.sleep(0.05)


async def drive_once(client: Client) -> None:
    try:
        await client.load("a")
        await turn(client)
        await client.unload()
        await client.call("daemon/shutdown", api.ShutdownParams(reason="stop"), api.Value)
        await client.peer.closed.wait()
    except (ModeldError, PeerGone):
        return


async def turn(client: Client) -> api.TurnResult:
    return await client.turn("a").end(PATIENCE)


async def takes_over(client: Client, root: DataRoot) -> None:
    """The other one is asked until it owns; meanwhile there is never a second worker that may load."""
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                await client.load("a")
                break
            except (NotOwner, DeviceBusy):
                await anyio.sleep(0.05)
    assert (await turn(client)).finish_reason == "stop"


async def check(root: DataRoot, owner: str, modeld: Modeld) -> None:
    """Owners <= 1, workers <= 1, the database consistent."""
    found = survey(root)
    assert found.owner is not None
    assert found.owner.instance == owner
    (worker,) = modeld.workers()
    assert found.owner.worker is not None
    assert found.owner.worker.pid == worker.pid
    # one that was never named ends by its watchdog; it holds no model
    await eventually(lambda: [one.pid for one in workers_of(root)] == [worker.pid], "one worker", PATIENCE)
    assert ask(root, "PRAGMA integrity_check") == [("ok",)]
    assert ask(root, "SELECT instance, epoch FROM owner") == [(owner, found.owner.epoch)]
    # the first one's turn is abandoned; the other's end is noted behind its back
    running = "SELECT client, instance FROM turns WHERE state = 'active'"
    await eventually(lambda: not ask(root, running), "no turn is left running in the database", PATIENCE)


def ask(root: DataRoot, question: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(f"file:{root.database}?mode=ro", uri=True)
    try:
        return database.execute(question).fetchall()
    finally:
        database.close()


def workers_of(root: DataRoot) -> list[psutil.Process]:
    found = []
    for process in processes_of(root.path):
        try:
            if "modeld.worker.process" in process.cmdline() and is_alive(process):
                found.append(process)
        except psutil.Error:
            continue  # it ended while we looked
    return found


async def woken_and_idle(victim: Modeld) -> None:
    """It woke and does nothing, or it was ended because it was stopped inside a transaction."""
    process = victim.process
    assert process is not None
    with anyio.fail_after(PATIENCE):
        while process.poll() is None and not await idle(victim):
            await anyio.sleep(0.05)
    assert not victim.workers()
    assert process.poll() in (None, -signal.SIGKILL, 0)


async def idle(victim: Modeld) -> bool:
    """Whether it answers, owns nothing and holds nothing. While it changes its instance it answers nobody."""
    try:
        async with victim.client() as client:
            status = await client.status()
    except (ExceptionGroup, OSError, EndpointError, AssertionError):
        return False
    return status.role != "owner" and (status.state, status.active) == ("Empty", None) and not victim.workers()


def stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED
