"""An editor's first conversation: picker, pick, streamed answer, status, end."""

from __future__ import annotations

from typing import Any

import pytest

from clients.bridge import BridgeError, model_option, model_values
from clients.home import Home

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

CAPITAL = "What is the capital of France? Answer in one word."


def test_a_local_model_answers_in_the_editor(engine: Home) -> None:
    with engine.bridge() as editor:
        hello = editor.initialize()
        assert hello["protocolVersion"] == 1
        assert hello["authMethods"], "an editor's registry asks for at least one"
        session = editor.new_session(engine.work)
        name = editor.find_model(session, "smollm2")
        chosen = editor.choose(session["sessionId"], "model", name)
        assert model_option(chosen)["currentValue"] == name
        turn = editor.prompt(session["sessionId"], CAPITAL)
        assert turn.stop_reason == turn.ended_by(engine.environ["MODELD_TURN_TOKENS"])
        assert turn.text
        assert turn.chunks > 1, "the answer is streamed, not delivered whole"
        status = engine.status()
        assert status["state"] == "Ready"
        assert status["role"] == "owner"
        assert "smollm2" in status["active"]["name"].lower()
        assert status["last_turn"]["usage"]["generated"] > 0


def test_a_second_turn_prefills_only_what_is_new(engine: Home) -> None:
    with engine.bridge() as editor:
        editor.initialize()
        session = editor.new_session(engine.work)
        identity = session["sessionId"]
        editor.choose(identity, "model", editor.find_model(session, "smollm2"))
        editor.prompt(identity, CAPITAL)
        first = engine.status()["last_turn"]["usage"]
        editor.prompt(identity, CAPITAL)
        second = engine.status()["last_turn"]["usage"]
        prompt = first.get("reused", 0) + first["prefilled"]
        assert second["reused"] >= prompt
        assert second["prefilled"] < prompt


@pytest.mark.openvino
def test_status_has_what_scripts_read(home: Home) -> None:
    home.start("openvino")
    status = home.status()
    assert list(status)[:7] == ["instance", "role", "pid", "backend", "state", "generation", "active"]
    assert status["state"] == "Empty"
    assert status["active"] is None


@pytest.mark.openvino
def test_picker_and_errors_without_a_daemon(home: Home) -> None:
    with home.bridge() as editor:
        editor.initialize()
        session = editor.new_session(home.work)
        assert model_values(session), "the picker explains itself with one entry at least"
        with pytest.raises(BridgeError) as caught:
            editor.prompt(session["sessionId"], CAPITAL)
        assert caught.value.kind == "daemon_not_running"
        home.start("openvino")
        again = editor.new_session(home.work)
        editor.choose(again["sessionId"], "model", editor.find_model(again, "smollm2"))
        assert editor.prompt(again["sessionId"], CAPITAL).text


def test_cancel_ends_the_turn_and_the_next_one_works(engine: Home) -> None:
    with engine.bridge() as editor:
        editor.initialize()
        session = editor.new_session(engine.work)
        identity = session["sessionId"]
        editor.choose(identity, "model", editor.find_model(session, "smollm2"))
        pending = editor.begin_prompt(identity, "Write a long story about a lighthouse keeper and the sea.")
        editor.wait_update(pending, "agent_message_chunk")
        editor.notify("session/cancel", {"sessionId": identity})
        assert editor.end_prompt(pending, 10).stop_reason == "cancelled"
        editor.notify("session/cancel", {"sessionId": identity})  # an idle cancel does not stick
        after = editor.prompt(identity, CAPITAL)
        assert after.stop_reason == after.ended_by(engine.environ["MODELD_TURN_TOKENS"])
        assert engine.status()["state"] == "Ready"


@pytest.mark.openvino
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{not json", -32700),
        ("[]", -32600),
        ('{"jsonrpc":"2.0","id":77,"method":"session/teleport","params":{}}', -32601),
        ('{"jsonrpc":"2.0","id":78,"method":"session/prompt","params":{"sessionId":7}}', -32602),
        (
            (
                '{"jsonrpc":"2.0","id":79,"method":"session/prompt",'
                '"params":{"sessionId":"no-such","prompt":[{"type":"text","text":"x"}]}}'
            ),
            -32002,
        ),
    ],
)
def test_garbage_is_answered_and_the_stream_goes_on(home: Home, message: str, code: int) -> None:
    answers: list[dict[str, Any]] = []
    with home.bridge() as editor:
        editor.initialize()
        editor.on_other = answers.append
        editor.send_line(message)
        assert editor.new_session(home.work)["sessionId"]
    assert [answer["error"]["code"] for answer in answers] == [code]
