"""The daemon's beginning and end: signals, crashes, owners and standbys, and what must never be left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from frozen import freeze
from modeld_process import ENDLESS, Modeld, is_alive, write_script
from shared.errors import NotOwner, StaleError
from shared.lease.reader import survey
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import PeerGone
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(60)]

FOREVER = api.Sampling(max_tokens=10**6)


def scripted(root: DataRoot, *replies: dict[str, Any], **environ: str) -> Modeld:
    return Modeld(root, "scripted", **write_script(root.path, replies, token_s=0.005), **environ)


async def test_sigterm_lets_a_short_turn_end_and_leaves_nothing(models: DataRoot) -> None:
    async with scripted(models, {"pieces": ["x "] * 40}) as modeld:
        async with modeld.client() as client:
            turn = client.turn("a", params=api.Sampling(max_tokens=100))
            await turn.until(api.TextDelta)
            workers = modeld.workers()
            os.kill(modeld.pid, signal.SIGTERM)
            assert (await turn.end()).finish_reason == "stop"
        assert await modeld.end() == 0
        assert workers
        assert not any(is_alive(worker) for worker in workers)
        found = survey(models)
        assert found.released == "shutdown"
        assert found.living == []


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be asked to end by a signal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_process_goes_down_changes_nothing(models: DataRoot, number: signal.Signals) -> None:
    """As from a service manager, behind a `modeld stop`."""
    async with scripted(models) as modeld:
        async with modeld.client() as client:
            await client.call("daemon/shutdown", api.ShutdownParams(reason="stop"), api.Value)
        await eventually(lambda: "ended: stop" in modeld.log(), "its end")
        while modeld.process is not None and modeld.process.poll() is None:
            modeld.process.send_signal(number)
            await anyio.sleep(0.001)
        assert await modeld.end() == 0


async def test_a_stop_ends_a_turn_that_does_not_end_by_itself(models: DataRoot) -> None:
    async with scripted(models, ENDLESS, MODELD_SHUTDOWN_DRAIN="0.2") as modeld:
        async with modeld.client() as client, modeld.client("waits") as other:
            turn = client.turn("a", params=FOREVER)
            await turn.until(api.TextDelta)
            waiting = other.turn("a")
            await waiting.until(api.Queued)
            await client.call("daemon/shutdown", api.ShutdownParams(reason="stop"), api.Value)
            ended = await turn.end()
            assert ended.finish_reason == "cancelled_by_other"
            with pytest.raises((StaleError, PeerGone)):
                await waiting.end()
        assert await modeld.end() == 0
        assert survey(models).released == "stop"


async def test_a_killed_daemon_leaves_no_worker(models: DataRoot) -> None:
    async with scripted(models, ENDLESS) as modeld:
        async with modeld.client() as client:
            turn = client.turn("a", params=FOREVER)
            await turn.until(api.TextDelta)
            workers = modeld.workers()
            await modeld.end(signal.SIGKILL)
            await turn.ended.wait()
        assert workers
        await eventually(lambda: not any(is_alive(worker) for worker in workers), "the worker ends by itself", 5.0)
        async with scripted(models) as successor, successor.client() as client:
            status = await client.status()
            assert (status.state, status.active) == ("Empty", None)
            loaded = await client.load("a")
            assert loaded.generation > 1
            status = await client.status()
            assert status.abandoned_turns == 1
            assert status.hint_model == "a"


async def test_a_frozen_daemon_does_not_keep_a_model_resident(models: DataRoot) -> None:
    async with scripted(models, MODELD_LEASE_TTL="1.0") as modeld:
        async with modeld.client() as client:
            await client.load("a")
            (worker,) = modeld.workers()
            freeze(modeld.pid)
            try:
                await eventually(lambda: not is_alive(worker), "the watchdog ends the worker", 10.0)
            finally:
                os.kill(modeld.pid, signal.SIGCONT)
        await modeld.end()


async def test_a_second_modeld_is_a_standby_that_answers_and_defers(models: DataRoot) -> None:
    async with scripted(models) as owner, owner.client() as client:
        await client.load("a")
        async with scripted(models) as second, second.client() as other:
            with pytest.raises(NotOwner) as caught:
                await other.load("a")
            assert caught.value.owner["instance"] == client.hello.instance
            assert caught.value.owner["endpoint"]
            with anyio.fail_after(5.0):
                while (await other.status()).role != "standby":
                    await anyio.sleep(0.02)
            assert second.workers() == []


async def test_a_standby_takes_over_after_a_crash_and_starts_empty(models: DataRoot) -> None:
    async with scripted(models, MODELD_LEASE_TTL="1.0") as owner:
        async with owner.client() as client:
            generation = (await client.load("a")).generation
        async with scripted(models, MODELD_LEASE_TTL="1.0") as standby, standby.client() as other:
            with anyio.fail_after(5.0):
                while (await other.status()).role != "standby":
                    await anyio.sleep(0.02)
            await owner.end(signal.SIGKILL)
            with anyio.fail_after(10.0):
                while (await other.status()).role != "owner":
                    await anyio.sleep(0.02)
            status = await other.status()
            assert (status.state, status.active) == ("Empty", None)
            assert (await other.load("a")).generation > generation


async def test_a_lost_lease_costs_the_model_and_not_the_process(models: DataRoot) -> None:
    """The process was frozen for too long and somebody else took over: it goes on as a new instance."""
    async with scripted(models, MODELD_LEASE_TTL="1.0") as first:
        async with first.client() as client:
            await client.load("a")
            before = client.hello.instance
            freeze(first.pid)
            try:
                async with scripted(models, MODELD_LEASE_TTL="1.0") as second, second.client() as other:
                    with anyio.fail_after(20.0):
                        while True:
                            try:
                                loaded = await other.load("b")
                                break
                            except NotOwner:
                                await anyio.sleep(0.1)
                    assert loaded.active.name == "b"
                    os.kill(first.pid, signal.SIGCONT)
                    await eventually(lambda: first.instance() not in ("", before), "a new instance")
                    async with first.client() as again:
                        status = await again.status()
                        assert status.instance != before
                        assert (status.state, status.active) == ("Empty", None)
                        assert first.workers() == []
            finally:
                os.kill(first.pid, signal.SIGCONT)
        assert await first.end() == 0


async def test_a_socket_that_was_removed_is_bound_again(models: DataRoot) -> None:
    async with scripted(models, MODELD_LEASE_TTL="1.0") as modeld, modeld.client() as client:
        await client.load("a")
        view = modeld.view()
        assert view is not None
        os.unlink(view.endpoint.removeprefix("unix:"))
        await eventually(lambda: os.path.exists(view.endpoint.removeprefix("unix:")), "the socket is back")
        async with modeld.client() as other:
            assert (await other.status()).state == "Ready"


async def test_restart_is_the_same_process_and_a_new_instance(models: DataRoot) -> None:
    async with scripted(models) as modeld:
        async with modeld.client() as client:
            await client.load("a")
            before = client.hello.instance
            await client.call("daemon/restart", api.ShutdownParams(reason="restart"), api.Value)
        await eventually(lambda: modeld.instance() not in ("", before), "it is back")
        async with modeld.client() as client:
            assert (await client.status()).state == "Empty"


#: What a daemon without a model has no business importing (STYLE: exact where wall time is noisy).
HEAVY = (
    "argparse", "logging.handlers", "sqlite3", "psutil", "tomllib", "platformdirs", "llama_cpp", "openvino",
    "openvino_genai", "numpy", "jinja2", "httpx2", "mcp", "pygls", "lsprotocol", "pydantic", "jsonrpcclient",
    "starlette", "uvicorn", "h11",
)  # fmt: skip


async def test_the_start_path_imports_nothing_heavy_and_stays_small(models: DataRoot) -> None:
    program = (
        "import sys, anyio, modeld.cli.commands.serve, modeld.daemon, modeld.engine.backends\n"
        "import shared.paths, shared.settings\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    async with scripted(models) as modeld, modeld.client() as client:
        await client.status()
        assert psutil.Process(modeld.pid).memory_info().rss <= 45 * 1000 * 1000


async def test_a_socket_that_a_killed_instance_left_is_removed_by_the_next(models: DataRoot) -> None:
    async with scripted(models) as first:
        async with first.client() as client:
            left = Path((await client.status()).endpoint.removeprefix("unix:"))
        await first.end(signal.SIGKILL)
    assert left.exists()
    os.utime(left, (0, 0))  # younger ones are left alone: their instance may be about to listen
    async with scripted(models):
        await eventually(lambda: not left.exists(), "the dead socket is gone")
