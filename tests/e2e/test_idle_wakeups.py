"""Idle processes sleep: voluntary context switches are counted over a quarter of a minute.

What may wake them is in the settings: an owner renews its lease and beats its worker's heart, a bridge looks at the
records while modeld is away. Nothing else may.
"""

from __future__ import annotations

import time

import psutil
import pytest

from clients.home import Home
from counts import FULL
from shared.settings import Settings

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

#: the soak watches a whole minute
SECONDS = 60.0 if FULL else 15.0
CAPITAL = "What is the capital of France? Answer in one word."
#: one wake-up costs a thread at most this many voluntary switches (timer, file writes, hand-over between threads)
SWITCHES = 8


def switches(process: psutil.Process, seconds: float) -> int:
    """Voluntary context switches of all threads while nothing happens."""
    before = process.num_ctx_switches().voluntary
    time.sleep(seconds)  # the measurement itself
    return int(process.num_ctx_switches().voluntary - before)


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
        looks = SECONDS / numbers.away_check
        assert switches(daemon, SECONDS) <= looks * SWITCHES / 2, "it looks whether an owner has crashed, nothing else"
        assert switches(bridge, SECONDS) <= SWITCHES, "a connected bridge is pushed to"

        editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
        editor.prompt(session["sessionId"], CAPITAL)
        settle()
        renewals = SECONDS / numbers.lease_renew
        beats = SECONDS / (numbers.worker_watchdog / 3)
        assert switches(daemon, SECONDS) <= (renewals + beats + 1) * SWITCHES
        assert switches(bridge, SECONDS) <= SWITCHES

        home.run("modeld", "stop")
        settle()
        assert switches(bridge, SECONDS) <= looks * SWITCHES
