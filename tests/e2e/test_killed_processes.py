"""kill -9 in the middle of a turn: of the daemon, of its worker, of the bridge. The next turn works."""

from __future__ import annotations

import psutil
import pytest

from clients.bridge import Bridge, BridgeError, Pending
from clients.home import Home
from clients.wire import Wire
from waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

LONG = "Write a long story about a lighthouse keeper and the sea."
CAPITAL = "What is the capital of France? Answer in one word."


def in_a_turn(home: Home, editor: Bridge) -> tuple[str, Pending]:
    editor.initialize()
    session = editor.new_session(home.work)
    identity = session["sessionId"]
    editor.choose(identity, "model", editor.find_model(session, "smollm2"))
    pending = editor.begin_prompt(identity, LONG)
    editor.wait_update(pending, "agent_message_chunk")
    return identity, pending


def test_worker_killed(engine: Home) -> None:
    with engine.bridge() as editor:
        session, pending = in_a_turn(engine, editor)
        before = engine.status()
        psutil.Process(before["worker_pid"]).kill()
        with pytest.raises(BridgeError) as caught:
            editor.end_prompt(pending, 10)
        assert caught.value.kind == "engine_failed"
        assert caught.value.code == -32027
        assert editor.prompt(session, CAPITAL).text
        after = engine.status()
        assert after["pid"] == before["pid"], "the daemon outlives its worker"
        assert after["generation"] > before["generation"]


def test_daemon_killed(engine: Home) -> None:
    with engine.bridge() as editor:
        session, pending = in_a_turn(engine, editor)
        before = engine.status()
        worker = psutil.Process(before["worker_pid"])
        psutil.Process(before["pid"]).kill()
        with pytest.raises(BridgeError) as caught:
            editor.end_prompt(pending, 10)
        assert caught.value.kind.startswith("daemon_")
        until(lambda: not worker.is_running(), "the worker of a dead daemon ends by itself", 5)
        engine.start(before["backend"])
        assert editor.prompt(session, CAPITAL).text
        assert engine.status()["instance"] != before["instance"]


def test_bridge_killed(engine: Home) -> None:
    editor = engine.bridge()
    in_a_turn(engine, editor)
    with Wire(engine.root) as wire:
        before = wire.status()
        assert before["state"] == "Busy"
        editor.kill()
        wire.wait_state("Ready", 1.0)
        after = wire.status()
        assert after["generation"] == before["generation"], "the model stays"
        assert after["last_turn"]["finish_reason"] == "cancelled"
    with engine.bridge() as fresh:
        fresh.initialize()
        session = fresh.new_session(engine.work)
        fresh.choose(session["sessionId"], "model", fresh.find_model(session, "smollm2"))
        assert fresh.prompt(session["sessionId"], CAPITAL).text


def test_bridge_ends_with_its_input(engine: Home) -> None:
    editor = engine.bridge()
    in_a_turn(engine, editor)
    assert editor.close() == 0
    with Wire(engine.root) as wire:
        wire.wait_state("Ready", 1.0)
