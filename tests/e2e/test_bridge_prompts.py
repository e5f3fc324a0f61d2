"""Prompts an editor may send by mistake, and models it may name that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from clients.bridge import Bridge, BridgeError
from clients.home import Home

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

CAPITAL = "What is the capital of France? Answer in one word."


def begin(home: Home, editor: Bridge) -> str:
    editor.initialize()
    session = editor.new_session(home.work)
    editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
    return str(session["sessionId"])


def send(editor: Bridge, session: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return editor.request("session/prompt", {"sessionId": session, "prompt": blocks})


def test_a_prompt_without_text_is_refused_by_name(engine: Home) -> None:
    with engine.bridge() as editor:
        session = begin(engine, editor)
        for blocks in ([], [{"type": "text", "text": ""}], [{"type": "text", "text": " \n "}]):
            with pytest.raises(BridgeError) as caught:
                send(editor, session, blocks)
            assert caught.value.code == -32602
        assert editor.prompt(session, CAPITAL).text


def test_a_prompt_longer_than_the_context_says_the_numbers(engine: Home) -> None:
    with engine.bridge() as editor:
        session = begin(engine, editor)
        with pytest.raises(BridgeError) as caught:
            editor.prompt(session, "word " * 20000)
        assert caught.value.kind == "context_overflow"
        assert caught.value.data["additional"] > caught.value.data["context"] > 0
        fresh = editor.new_session(engine.work)
        editor.choose(fresh["sessionId"], "model", editor.find_model(fresh, "smollm2"))
        assert editor.prompt(fresh["sessionId"], CAPITAL).text
        assert editor.prompt(session, CAPITAL).text, "the refused prompt does not spoil its conversation"


@pytest.mark.openvino
def test_an_unknown_model_is_refused_when_it_is_picked(home: Home) -> None:
    with home.bridge() as editor:
        editor.initialize()
        session = editor.new_session(home.work)
        with pytest.raises(BridgeError) as caught:
            editor.choose(session["sessionId"], "model", "no-such-model")
        assert caught.value.code == -32602
        assert "no-such-model" in caught.value.message
