"""Races for the lease between real processes on Windows, where rename stands in for the hard link."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import winreg
from pathlib import Path

import pytest

from shared.clock import SystemClock
from shared.lease import disk
from shared.lease.contender import Contender
from shared.lease.files import LeaseFolder, prepare
from shared.lease.process.identity import current
from shared.lease.record import USUAL_TTL
from shared.paths import DataRoot

assert sys.platform == "win32"

pytestmark = pytest.mark.integration

CHECKOUT = os.environ["MODELD_CHECKOUT"]
CONTENDERS = 4
ROUNDS = 15

PRELUDE = textwrap.dedent(
    f"""
    import sys; sys.path.insert(0, {CHECKOUT!r})
    import os, time
    from pathlib import Path
    from shared.clock import SystemClock
    from shared.lease import disk
    from shared.lease.contender import Contender
    from shared.lease.files import LeaseFolder, prepare
    from shared.lease.process.identity import current
    from shared.paths import DataRoot

    def contender(path, name):
        root = DataRoot(Path(path))
        prepare(root)
        return Contender(LeaseFolder(root, name), current(), SystemClock())

    def gate(path):
        deadline = time.monotonic() + 60
        while not os.path.exists(path):
            assert time.monotonic() < deadline
            time.sleep(0.0005)
    """
)


@pytest.fixture(scope="module", autouse=True)
def count_of_starts() -> None:
    """Windows counts its starts in the registry; wine does not, so the count is written where it is missing."""
    where = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
    with winreg.CreateKey(winreg.HKEY_LOCAL_MACHINE, where) as key:
        try:
            winreg.QueryValueEx(key, "BootId")
        except FileNotFoundError:
            winreg.SetValueEx(key, "BootId", 0, winreg.REG_DWORD, 7)


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


RACE = """
    base, name = sys.argv[1:3]
    for turn in range(int(sys.argv[3])):
        me = contender(os.path.join(base, str(turn)), name)
        print("ready", flush=True)
        gate(os.path.join(base, f"{turn}.go"))
        taken = me.take(me.look(), name, ttl=10.0, meta={})
        print("none" if taken is None else taken.record.epoch, flush=True)
"""


def test_one_owner_in_every_race(short_tmp: Path) -> None:
    racers = [python(RACE, str(short_tmp), f"racer{number}", str(ROUNDS)) for number in range(CONTENDERS)]
    try:
        for turn in range(ROUNDS):
            for racer in racers:
                assert racer.stdout is not None
                assert racer.stdout.readline().strip() == "ready"
            (short_tmp / f"{turn}.go").touch()
            answers = [racer.stdout.readline().strip() for racer in racers if racer.stdout is not None]
            assert len([answer for answer in answers if answer != "none"]) == 1, answers
            assert set(answers) <= {"none", "1", "2"}
    finally:
        for racer in racers:
            if sys.exc_info()[0] is not None:
                racer.kill()
            racer.communicate(timeout=30)
    assert [racer.returncode for racer in racers] == [0] * CONTENDERS


HOLD = """
    me = contender(sys.argv[1], "first")
    taken = me.take(me.look(), "first", ttl=10.0, meta={})
    print(taken.record.epoch, flush=True)
    sys.stdin.read()
"""


def test_a_killed_owner_is_followed_at_once_and_a_living_one_never(short_tmp: Path) -> None:
    root = DataRoot(short_tmp)
    prepare(root)
    successor = Contender(LeaseFolder(root, "second"), current(), SystemClock())
    with python(HOLD, str(short_tmp)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "1"
        assert successor.take(successor.look(), "second", ttl=10.0, meta={}) is None
        holder.kill()
        holder.wait(timeout=30)
        taken = successor.take(successor.look(), "second", ttl=10.0, meta={})
    assert taken is not None
    assert taken.record.epoch == 2
    assert taken.before is not None
    assert taken.before.instance == "first"


READ = """
    path, stop = Path(sys.argv[1]), sys.argv[2]
    print("ready", flush=True)
    count = 0
    deadline = time.monotonic() + 30
    while not os.path.exists(stop):
        assert time.monotonic() < deadline
        content = disk.read(path)
        assert content.startswith(b"<") and content.endswith(b">"), content
        count += 1
        time.sleep(0.02)
    print(count, flush=True)
"""


def renew(path: Path, content: bytes) -> None:
    """As the keeper does: a write that met a reader is tried again, well within the lease's time."""
    deadline = time.monotonic() + USUAL_TTL / 3
    while True:
        try:
            disk.replace(path, content, "writer")
        except PermissionError:
            assert time.monotonic() < deadline
        else:
            return


def test_replacing_under_readers_is_never_torn_and_succeeds_in_time(short_tmp: Path) -> None:
    path, stop = short_tmp / "record", short_tmp / "stop"
    disk.replace(path, b"<first>", "writer")
    readers = [python(READ, str(path), str(stop)) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline().strip() == "ready"
    end = time.monotonic() + 2
    number = 0
    while time.monotonic() < end:
        number += 1
        renew(path, b"<%d>" % number * 50)
        time.sleep(0.01)
    stop.touch()
    for reader in readers:
        out, err = reader.communicate(timeout=30)
        assert reader.returncode == 0, err
        assert int(out) > 0
    assert disk.read(path) == b"<%d>" % number * 50
