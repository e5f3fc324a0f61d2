"""A few of the deeds of tests/sabotage.py; tests/soak/soak_sabotage.py does them all, over and over."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import anyio
import pytest

from modeld_process import Modeld, write_models, write_script
from sabotage import SABOTAGE, commit
from shared.errors import EngineFailed, NotOwner
from shared.lease.reader import survey
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [
    pytest.mark.integration,
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="workers are sampled from /proc"),
]


@pytest.mark.parametrize(
    ("name", "standby"),
    [
        ("the data root is deleted", False),
        ("the data root is restored from a backup", True),
        ("owner/ holds records of an ownership that let go", True),
        ("the next numbers are odd, and the lease is deleted", False),
        ("local.db is a FIFO", True),
        ("instances/ is deleted", True),
    ],
)
async def test_never_two_workers_and_one_owner_afterwards(name: str, standby: bool, short_tmp: Path) -> None:
    """Most of the time is the wait for what nobody can see."""
    outcome = await commit(SABOTAGE[name], short_tmp, standby=standby)
    assert outcome.problems == []


async def test_a_copied_root_acts_on_nothing_of_the_original(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    environ = write_script(data_root.path)
    async with Modeld(data_root, "scripted", **environ) as original, original.client() as client:
        await client.load("a")
        [worker] = original.workers()
        copied = DataRoot(data_root.path.parent / "copy")
        shutil.copytree(data_root.path, copied.path, ignore=shutil.ignore_patterns("*.sock"))
        assert survey(data_root).owner is not None
        assert survey(copied).living == []
        assert survey(copied).owner is None
        async with Modeld(copied, "scripted", **environ, MODELD_DATA_ROOT=str(copied.path)) as copy:
            async with copy.client() as other:
                await other.load("a")
                assert worker.is_running()
                assert (await other.status()).role == (await client.status()).role == "owner"
        assert worker.is_running()
        assert (await client.status()).state == "Ready"


async def test_a_loss_is_reported_to_whoever_waits_and_says_why(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    environ = write_script(data_root.path, [{"pieces": ["on "], "endless": True}] * 4, token_s=0.005)
    async with Modeld(data_root, "scripted", **environ, MODELD_LEASE_TTL="1") as modeld:
        async with modeld.client() as client, modeld.client("waits") as other:
            turn = client.turn("a", params=api.Sampling(max_tokens=10**6))
            await turn.until(api.TextDelta)
            waiting = other.turn("a")
            await waiting.until(api.Queued)
            last = survey(data_root).last
            assert last is not None
            os.unlink(data_root.owner / f"{last.epoch}.lease")
            for one in (turn, waiting):
                with pytest.raises(NotOwner):
                    await one.end()
        assert "1.lease has been removed" in modeld.log()
        with anyio.fail_after(30):
            while (view := modeld.view()) is None or view.instance == client.hello.instance:
                await anyio.sleep(0.02)
        async with modeld.client() as again:
            error = (await again.status()).last_error
            assert error is not None
            assert "1.lease has been removed" in error["message"]


async def test_a_worker_that_a_signal_stopped_ends_its_turn_typed(data_root: DataRoot) -> None:
    """A turn is looked after from five seconds of silence on."""
    write_models(data_root, "a")
    environ = write_script(data_root.path, [{"pieces": ["on "], "endless": True}] * 4, token_s=0.005)
    async with Modeld(data_root, "scripted", **environ) as modeld, modeld.client() as client:
        turn = client.turn("a", params=api.Sampling(max_tokens=10**6))
        await turn.until(api.TextDelta)
        [worker] = modeld.workers()
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(EngineFailed):
            await turn.end(60)
        assert "a signal stopped it" in modeld.log()
        again = client.turn("a", params=api.Sampling(max_tokens=10**6))
        await again.until(api.TextDelta)
        client.cancel(again)
        await again.end()
