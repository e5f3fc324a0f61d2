"""What happens around a living owner and must not end it: clocks that jump, a closed lid, a runtime folder that is
emptied. And what a takeover ends: everything that was given out before it. Real daemons, a model resident.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from churn import Unjudged
from clients.bridge import Bridge
from frozen import freeze
from modeld_process import Client, Modeld, is_alive, write_models, write_script
from shared.errors import NotOwner, StaleFence
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(90)]
TTL = 1.0

#: Put before everything else that the interpreter imports: the wall clock of this process, moved by a file.
SHIM = """
import os, time
_wall, _file = time.time, os.environ["WALL_SHIFT_FILE"]
def shifted():
    try:
        with open(_file) as file:
            return _wall() + float(file.read() or 0)
    except OSError:
        return _wall()
time.time = shifted
"""


def scripted(root: DataRoot, **environ: str) -> Modeld:
    write_models(root, "a")
    script = write_script(root.path, [{"pieces": ["Paris"]}])
    return Modeld(root, "scripted", MODELD_LEASE_TTL=str(TTL), **script, **environ)


async def standby(client: Client) -> None:
    with anyio.fail_after(15.0):
        while (await client.status()).role != "standby":
            await anyio.sleep(0.02)


@pytest.mark.parametrize("shift", [3600, -3600])
async def test_a_wall_clock_set_by_an_hour_unloads_nothing(data_root: DataRoot, short_tmp: Path, shift: int) -> None:
    """By a shim in the processes: the owner's clock jumps, then the standby's, then both are right again."""
    (short_tmp / "shim").mkdir()
    (short_tmp / "shim" / "sitecustomize.py").write_text(SHIM)
    files = [short_tmp / "shift-owner", short_tmp / "shift-standby"]
    owner, other = (
        scripted(data_root, PYTHONPATH=str(short_tmp / "shim"), WALL_SHIFT_FILE=str(path)) for path in files
    )
    async with owner, owner.client() as client:
        generation = (await client.load("a")).generation
        async with other, other.client() as second:
            await standby(second)
            for path in files:
                path.write_text(str(shift))
                await anyio.sleep(2 * TTL)  # time itself is what is tested
                with pytest.raises(NotOwner):
                    await second.load("a")
            for path in files:
                path.write_text("0")
            await anyio.sleep(2 * TTL)
            with pytest.raises(NotOwner):
                await second.load("a")
            status = await client.status()
            assert (status.role, status.state, status.generation) == ("owner", "Ready", generation)
            assert (await client.turn("a").end()).finish_reason == "stop"


async def test_a_closed_lid_unloads_nothing(data_root: DataRoot) -> None:
    """Owner, worker and standby are stopped together for three ttl; whoever wakes first, the model stays."""
    owner, other = scripted(data_root), scripted(data_root)
    async with owner, owner.client() as client:
        generation = (await client.load("a")).generation
        (worker,) = owner.workers()
        async with other, other.client() as second:
            await standby(second)
            stopped = [owner.pid, worker.pid, other.pid]
            for pid in stopped:
                freeze(pid)
            time.sleep(3 * TTL)  # as long as the lid is closed
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)
            await anyio.sleep(2 * TTL)
            status = await client.status()
            assert (status.instance, status.role) == (client.hello.instance, "owner")
            assert (status.state, status.generation) == ("Ready", generation)
            assert is_alive(worker)
            with pytest.raises(NotOwner):
                await second.load("a")
            assert (await client.turn("a").end()).finish_reason == "stop"


async def test_a_deleted_runtime_folder_is_back_with_the_next_renewal(data_root: DataRoot) -> None:
    """As a logout does it. Who is connected stays connected; who comes later finds the owner by its records."""
    async with scripted(data_root) as owner, owner.client() as client:
        await client.load("a")
        view = owner.view()
        assert view is not None
        folder = Path(view.endpoint.removeprefix("unix:")).parent
        shutil.rmtree(folder)
        assert (await client.status()).state == "Ready"
        await eventually(folder.exists, "the folder is back")
        assert folder.stat().st_mode & 0o077 == 0
        bridge = Bridge([sys.executable, "-m", "acp_bridge", "acp"], owner.environ, Unjudged(), cwd=data_root.path)
        try:
            assert await anyio.to_thread.run_sync(answer, bridge, data_root.path) == "Paris"
        finally:
            await anyio.to_thread.run_sync(bridge.close)


def answer(bridge: Bridge, folder: Path) -> str:
    bridge.initialize()
    session = bridge.new_session(folder)
    bridge.choose(str(session["sessionId"]), "model", bridge.find_model(session, "a"))
    return bridge.prompt(str(session["sessionId"]), "the capital of France?", 30.0).text


async def test_what_an_owner_gave_out_is_stale_at_its_successor(data_root: DataRoot) -> None:
    owner, other = scripted(data_root), scripted(data_root)
    async with owner, other, other.client() as second:
        async with owner.client() as client:
            await client.load("a")
            await standby(second)
            handle = (await client.call("session/open", api.OpenParams(model="a"), api.OpenResult)).handle
            old = client.hello.instance
            await owner.end(signal.SIGKILL)
        with anyio.fail_after(15.0):
            while (status := await second.status()).role != "owner":
                await anyio.sleep(0.02)
        assert (status.state, status.active) == ("Empty", None)
        with pytest.raises(StaleFence):
            await second.call("session/close", api.HandleParams(handle=handle), api.Value)
        with pytest.raises(StaleFence):
            await second.call("model/load", api.LoadParams(model="a", fence=old), api.LoadResult)
        assert second.hello.instance != old
