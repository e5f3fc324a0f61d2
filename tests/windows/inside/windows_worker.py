"""An engine worker on Windows: its pipes both ways, its heartbeats, its end."""

from __future__ import annotations

import os
import sys
import time

import anyio
import pytest

from modeld.host import worker_host as host_module
from modeld.host.worker_host import WorkerHost
from modeld.pipe import exits
from shared.settings import Settings

assert sys.platform == "win32"

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

QUICK = Settings(lease_ttl=4.0)
CHECKOUT = os.environ["MODELD_CHECKOUT"]
#: This interpreter takes no path from its environment.
PROGRAM = f"import sys; sys.path.insert(0, {CHECKOUT!r}); from modeld.worker.process import main; main(sys.argv[1:])"


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "WORKER", ("-c", PROGRAM))


async def test_an_owner_whose_loop_comes_to_nothing_keeps_its_worker() -> None:
    """The lease is renewed by a thread that nothing blocks, and so is the heart beaten."""
    host = await WorkerHost.start("none", QUICK, None)
    time.sleep(2 * QUICK.worker_watchdog)  # the loop is what must not be needed
    assert await host.sample() is not None
    await host.close(5.0)
    assert host.exit_reason == exits.describe_exit(exits.CLOSED)


async def test_without_heartbeats_it_ends_and_says_why() -> None:
    host = await WorkerHost.start("none", QUICK, None)
    host.may_beat = lambda: False
    with anyio.fail_after(30):
        await host.exited.wait()
    assert host.exit_reason == exits.describe_exit(exits.OWNER_SILENT)
