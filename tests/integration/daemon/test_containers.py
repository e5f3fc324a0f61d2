"""A modeld in another pid namespace, as in a container that shares the data root: true sentences, nobody is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import anyio
import pytest

from modeld_process import Modeld, scripted
from shared.lease.reader import PresenceView, survey
from shared.paths import DataRoot
from waiting import LONG, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(120)]

#: Of nobody.
SOMEBODY = 54321
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Contained(Modeld):
    """One that counts its pids from 1."""

    def view(self) -> PresenceView | None:
        return next(iter(survey(self.root).living), None)


def contained(root: DataRoot) -> Contained:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("NOT PROVEN HERE: this machine does not permit another pid namespace")
    plain = scripted(root)
    modeld = Contained(root, "scripted", **{name: value for name, value in plain.environ.items() if "SCRIPTED" in name})
    modeld.prefix = UNSHARE
    return modeld


async def stopped(modeld: Modeld, *words: str) -> tuple[int, str]:
    line = [sys.executable, "-P", "-m", "modeld", "stop", *words]
    done = await anyio.run_process(line, env=modeld.environ, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


async def test_stop_says_the_truth_across_pid_namespaces(data_root: DataRoot) -> None:
    modeld = contained(data_root)
    await modeld.start()
    code, said = await stopped(modeld)
    assert (code, "modeld stopped" in said) == (0, True), said
    await eventually(lambda: modeld.process is None or modeld.process.poll() is not None, "it has ended", LONG)


async def test_a_frozen_one_in_another_namespace_is_not_said_to_have_stopped(data_root: DataRoot) -> None:
    modeld = contained(data_root)
    await modeld.start()
    (inside,) = children(modeld)
    subprocess.run(["kill", "-STOP", str(inside)], check=True)
    try:
        code, said = await stopped(modeld, "--drain", "0")
        assert code != 0, said
        assert "does not end" in said, said
        assert "there" in said
    finally:
        subprocess.run(["kill", "-CONT", str(inside)], check=True)
        await modeld.end(signal.SIGKILL)


def children(modeld: Modeld) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(modeld.pid).children()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write into the folders of others")
@pytest.mark.parametrize(
    "words",
    [
        ["modeld", "start"],
        ["modeld", "status"],
        ["modeld", "stop"],
        ["modeld", "library"],
        ["modeld", "doctor"],
        ["modeld", "pull", "starter"],
        ["acp_bridge", "models"],
    ],
)
async def test_root_leaves_nothing_in_a_users_data_root(data_root: DataRoot, words: list[str]) -> None:
    os.chown(data_root.path, SOMEBODY, SOMEBODY)
    line = [sys.executable, "-P", "-m", *words]
    done = await anyio.run_process(line, stdin=subprocess.DEVNULL, check=False)
    said = (done.stdout + done.stderr).decode()
    assert (done.returncode != 0, f"it belongs to uid {SOMEBODY}" in " ".join(said.split())) == (True, True), said
    assert os.listdir(data_root.path) == []
