"""Commands beside each other: the last one's wish comes true, and each says what became of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from modeld_process import ENDLESS, Client, Modeld, write_models, write_script
from shared import codes
from shared.lease.reader import survey
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX, and a process that becomes another"),
]
Done = subprocess.CompletedProcess[bytes]


class Commands:
    """`modeld ...` on this test's data root, several at once."""

    def __init__(self, root: DataRoot) -> None:
        self.root = root

    def living(self) -> list[int]:
        return [view.pid for view in survey(self.root).living]

    async def __call__(self, *words: str, drain: str = "60") -> Done:
        environ = {**os.environ, "MODELD_SHUTDOWN_DRAIN": drain}
        return await anyio.run_process([sys.executable, "-m", "modeld", *words], check=False, env=environ)

    @asynccontextmanager
    async def beside(self, *words: str, drain: str = "60") -> AsyncIterator[list[Done]]:
        """The command in the background; its end is there when the block ends."""
        done: list[Done] = []

        async def run() -> None:
            done.append(await self(*words, drain=drain))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield done


@pytest.fixture
async def modeld(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Commands]:
    """A daemon that was started by the command, with the scripted engine and a turn that ends by itself never."""
    write_models(data_root, "a")
    for name, value in write_script(data_root.path, [ENDLESS] * 9, token_s=0.005).items():
        monkeypatch.setenv(name, value)
    commands = Commands(data_root)
    started = await commands("start", "--backend", "scripted", drain="3")
    assert started.returncode == 0, started.stderr
    yield commands
    await commands("stop", "--drain", "0")
    assert commands.living() == []


@asynccontextmanager
async def turning(commands: Commands) -> AsyncIterator[Client]:
    """A client whose turn runs."""
    daemon = Modeld(commands.root)
    view = survey(commands.root).living[0]
    daemon.process = FoundProcess(view.pid)  # type: ignore[assignment]
    async with daemon.client() as client, daemon.client("runs") as other:
        turn = other.turn("a", params=api.Sampling(max_tokens=10**6))
        await turn.until(api.TextDelta)
        yield client


class FoundProcess:
    def __init__(self, pid: int) -> None:
        self.pid = pid


async def until_ending(client: Client, reason: str) -> None:
    with anyio.fail_after(30):
        while (await client.status()).ending != reason:
            await anyio.sleep(0.01)


def said(done: Done) -> str:
    return (done.stdout + done.stderr).decode()


async def test_a_start_beside_a_draining_stop_waits_for_its_end_and_starts(modeld: Commands) -> None:
    [before] = modeld.living()
    async with turning(modeld) as client, modeld.beside("stop") as stopped:
        await until_ending(client, "stop")
        async with modeld.beside("start", "--backend", "scripted") as started:
            await eventually(lambda: stopped, "the stop ends first")
        assert started[0].returncode == 0, said(started[0])
    [after] = modeld.living()
    assert after != before
    assert f"modeld is running (pid {after}" in said(started[0])
    assert f"pid {before} is ending; waiting" in said(started[0])
    assert (stopped[0].returncode, said(stopped[0])) == (0, f"modeld stopped (pid {before})\n")


async def test_a_restart_beside_a_draining_stop_leaves_one_running(modeld: Commands) -> None:
    [before] = modeld.living()
    instance = survey(modeld.root).living[0].instance
    async with turning(modeld) as client, modeld.beside("stop") as stopped:
        await until_ending(client, "stop")
        restarted = await modeld("restart", drain="3")
    assert restarted.returncode == 0, said(restarted)
    assert modeld.living() == [before]
    assert survey(modeld.root).living[0].instance != instance
    assert stopped[0].returncode == 0
    assert "another command has started it again" in said(stopped[0])


async def test_a_stop_beside_a_draining_restart_leaves_none(modeld: Commands) -> None:
    async with turning(modeld) as client, modeld.beside("restart") as restarted:
        await until_ending(client, "restart")
        stopped = await modeld("stop", drain="3")
    assert stopped.returncode == 0, said(stopped)
    assert restarted[0].returncode == codes.FAILED
    assert "stopped by another command" in said(restarted[0])
    assert modeld.living() == []


@pytest.mark.parametrize("drain", [(), ("--drain", "0.1")])
async def test_a_second_stop_shortens_the_drain(modeld: Commands, drain: tuple[str, ...]) -> None:
    async with turning(modeld) as client, modeld.beside("stop", "--drain", "600") as first:
        await until_ending(client, "stop")
        with anyio.fail_after(60):
            second = await modeld("stop", *drain)
    assert [first[0].returncode, second.returncode] == [0, 0]
    assert modeld.living() == []


async def test_three_restarts_at_once_leave_one_that_all_of_them_name(modeld: Commands) -> None:
    [pid] = modeld.living()
    async with modeld.beside("restart") as one, modeld.beside("restart") as two, modeld.beside("restart") as three:
        pass
    for done in (*one, *two, *three):
        assert done.returncode == 0, said(done)
        assert re.search(rf"modeld is running( already)? \(pid {pid},", said(done)), said(done)
    assert modeld.living() == [pid]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTSTP])
async def test_a_closed_terminal_and_ctrl_z_change_nothing(modeld: Commands, number: signal.Signals) -> None:
    [pid] = modeld.living()
    async with turning(modeld) as client:
        os.kill(pid, number)
        assert (await client.status()).ending == ""
        for worker in (await client.status()).worker_pid, pid:
            assert worker is not None
            os.kill(worker, number)
        assert (await client.status()).state == "Busy"


async def test_a_restart_ends_one_that_hangs_by_force(modeld: Commands) -> None:
    """Ten seconds are the time that a command gives an answer."""
    [pid] = modeld.living()
    os.kill(pid, signal.SIGSTOP)
    restarted = await modeld("restart", drain="0")
    assert restarted.returncode == 0, said(restarted)
    assert f"pid {pid} does not answer; it is ended by force" in said(restarted)
    [after] = modeld.living()
    assert after != pid
