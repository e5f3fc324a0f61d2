"""Idle processes sleep: voluntary context switches are counted over a quarter of a minute.

What may wake them: an owner renews its lease and beats its worker's heart, a bridge looks at the folders of models and
at its config file, and at the records while modeld is away. Nothing else may.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from acp_bridge.models.view import FILES_CHECK_S
from acp_bridge.providers.registry import WATCH_S
from clients.home import Home
from counts import FULL
from shared.lease import policy
from shared.settings import Settings

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

#: the soak watches a whole minute
SECONDS = 60.0 if FULL else 15.0
CAPITAL = "What is the capital of France? Answer in one word."
#: one wake-up costs at most this many voluntary switches (the timer, a visit to another thread and back, a write)
SWITCHES = 6
#: an instance looks once in this time whether its socket and records still stand, and shows that it lives
REPAIR_SECONDS = 10.0
#: how often an instance without the lease looks at it, as a part of the ttl: a death is reported by the kernel
LOOKS_PER_TTL = 5
#: one look at the folders of models: each is asked in a thread of its own, so that none that hangs decides for another
FOLDERS_SWITCHES = 12


def switches(*processes: psutil.Process) -> list[int]:
    """Voluntary context switches of all threads of each while nothing happens for SECONDS. What the system tells of
    a process is of its first thread alone.
    """
    if sys.platform != "linux":
        pytest.skip("NOT PROVEN HERE: switches of single threads are reported by Linux alone")
    before = [by_thread(process.pid) for process in processes]
    time.sleep(SECONDS)  # the measurement itself
    after = [by_thread(process.pid) for process in processes]
    return [
        sum(count - old.get(thread, 0) for thread, count in new.items()) for old, new in zip(before, after, strict=True)
    ]


def by_thread(pid: int) -> dict[str, int]:
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (folder / "status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue  # a thread that has just ended
        found[folder.name] = next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    return found


def settle() -> None:
    """First updates, background scans and caches end within this time."""
    time.sleep(2.0)


@pytest.mark.openvino
def test_idle_daemon_and_bridge_sleep(home: Home) -> None:
    numbers = Settings()
    home.start("openvino")
    with home.bridge() as editor:
        editor.initialize()
        session = editor.new_session(home.work)
        settle()
        daemon = psutil.Process(home.status()["pid"])
        bridge = psutil.Process(editor.process.pid)
        settle()
        repairs = SECONDS / REPAIR_SECONDS + 1
        looks = SECONDS / (numbers.lease_ttl / LOOKS_PER_TTL)
        folders = (SECONDS // FILES_CHECK_S + 1) * (SWITCHES + FOLDERS_SWITCHES)
        connected = folders + (SECONDS // WATCH_S + 1) * SWITCHES
        by_daemon, by_bridge = switches(daemon, bridge)
        assert by_daemon <= (looks + repairs) * SWITCHES, "it looks whether somebody owns, nothing else"
        assert by_bridge <= connected, "a connected bridge is pushed to"

        editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
        pending = editor.begin_prompt(session["sessionId"], CAPITAL)
        editor.wait_update(pending, "agent_message_chunk")  # what a turn leaves is what is measured, not its length
        editor.notify("session/cancel", {"sessionId": session["sessionId"]})
        editor.end_prompt(pending)
        settle()
        renewals = SECONDS / policy.renew_interval(numbers.lease_ttl)
        beats = SECONDS / (numbers.worker_watchdog / 3)
        by_daemon, by_bridge = switches(daemon, bridge)
        assert by_daemon <= (renewals + beats + repairs) * SWITCHES
        assert by_bridge <= connected

        home.run("modeld", "stop")
        settle()
        away = SECONDS / numbers.away_check
        (by_bridge,) = switches(bridge)
        assert by_bridge <= away * SWITCHES
