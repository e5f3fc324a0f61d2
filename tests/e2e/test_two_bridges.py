"""Two editors and one loaded model: turns go in turn, nobody is informed that it is busy."""

from __future__ import annotations

import pytest

from clients.home import Home

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(300)]

#: ten in turn
TURNS = 5
#: small models ramble; this one is answered in one sentence
CAPITAL = "What is the capital of France? Answer in one word."
LONG = "Write a long story about a lighthouse keeper and the sea."


def test_two_bridges_take_ten_turns_in_turn(engine: Home) -> None:
    with engine.bridge() as left, engine.bridge() as right:
        sessions = []
        for editor in (left, right):
            editor.initialize()
            session = editor.new_session(engine.work)
            editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
            sessions.append(session["sessionId"])
        left.prompt(sessions[0], CAPITAL)
        generation = engine.status()["generation"]
        for number in range(TURNS):
            pending = [
                editor.begin_prompt(session, f"{number}: {CAPITAL}")
                for editor, session in zip((left, right), sessions, strict=True)
            ]
            for editor, turn in zip((left, right), pending, strict=True):
                assert editor.end_prompt(turn).stop_reason in ("end_turn", "max_tokens")
        status = engine.status()
        assert status["generation"] == generation, "nothing was loaded again"
        assert status["state"] == "Ready"


def test_an_open_session_does_not_hold_the_model(engine: Home) -> None:
    with engine.bridge() as holder, engine.bridge() as other:
        for editor in (holder, other):
            editor.initialize()
        held = holder.new_session(engine.work)
        holder.choose(held["sessionId"], "model", holder.find_model(held, "smollm2"))
        holder.prompt(held["sessionId"], CAPITAL)
        session = other.new_session(engine.work)
        other.choose(session["sessionId"], "model", other.find_model(session, "smollm2"))
        assert other.prompt(session["sessionId"], CAPITAL).text


def test_a_waiting_editor_sees_its_place_and_can_leave(engine: Home) -> None:
    with engine.bridge() as busy, engine.bridge() as waiting:
        sessions = []
        for editor in (busy, waiting):
            editor.initialize()
            session = editor.new_session(engine.work)
            editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
            sessions.append(session["sessionId"])
        running = busy.begin_prompt(sessions[0], LONG)
        busy.wait_update(running, "agent_message_chunk")
        queued = waiting.begin_prompt(sessions[1], CAPITAL)
        engine.wait_queue(1)
        waiting.notify("session/cancel", {"sessionId": sessions[1]})
        assert waiting.end_prompt(queued, 5).stop_reason == "cancelled"
        busy.notify("session/cancel", {"sessionId": sessions[0]})
        assert busy.end_prompt(running, 10).stop_reason == "cancelled"
        assert waiting.prompt(sessions[1], CAPITAL).text
