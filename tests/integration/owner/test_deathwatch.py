"""The end of a process, reported by the kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import anyio
import msgspec
import pytest

from modeld.owner.process_exit_watch import DeathWatch
from shared.lease.process import identity
from shared.lease.record import Identity

pytestmark = [
    pytest.mark.integration,
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the caller polls, which other tests show"),
]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def of(process: subprocess.Popen[bytes]) -> Identity:
    token = identity.start_token(process.pid) or ""
    return msgspec.structs.replace(identity.current(), pid=process.pid, start_token=token)


async def test_an_end_is_reported_once_also_before_anybody_collects_the_process(child: subprocess.Popen[bytes]) -> None:
    reported: list[str] = []
    ended = anyio.Event()

    def tell() -> None:
        reported.append("ended")
        ended.set()

    watch = DeathWatch(identity.current(), tell)
    assert watch.follow(of(child))
    assert watch.follow(of(child))  # again, as at each look
    child.kill()
    with anyio.fail_after(5):
        await ended.wait()
    assert reported == ["ended"]
    assert not watch.follow(of(child)), "a zombie is followed by nobody"
    watch.close()


async def test_who_is_not_followed_any_more_is_not_informed_of(child: subprocess.Popen[bytes]) -> None:
    reported: list[str] = []
    watch = DeathWatch(identity.current(), lambda: reported.append("ended"))
    assert watch.follow(of(child))
    assert not watch.follow(None)
    child.kill()
    child.wait()
    await anyio.wait_all_tasks_blocked()
    assert reported == []


async def test_nobody_is_followed_on_a_guess(child: subprocess.Popen[bytes]) -> None:
    watch = DeathWatch(identity.current(), lambda: None)
    right = of(child)
    for wrong in ({"start_token": "1"}, {"pid": 2**22 + 1}, {"host": "elsewhere"}, {"pid_namespace": "other"}):
        assert not watch.follow(msgspec.structs.replace(right, **wrong)), wrong
    assert watch.follow(right)
    watch.close()
