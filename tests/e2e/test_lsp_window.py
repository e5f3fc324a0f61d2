"""A window of VS Code, as the bridge has it, with real weights: chat without a conversation id, Stop, switch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clients.editor import Editor, LspError
from clients.home import Home, command

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

CAPITAL = "What is the capital of France? Answer in one sentence."
#: What may be prefilled again at the seam: an engine that reuses whole blocks reads the last one again.
SLACK = {"llama": 4, "openvino": 64}


def window(home: Home) -> Editor:
    return Editor(home.environ, home.work, [command("acp-bridge"), "lsp"])


@pytest.fixture
def editor(engine: Home) -> Iterator[Editor]:
    """One window of a user whose modeld runs, once for each engine."""
    with window(engine) as opened:
        opened.initialize()
        yield opened


def said(editor: Editor, model: str, *history: str, **options: Any) -> tuple[str, dict[str, Any]]:
    turn = editor.turn(model, *history, options={"temperature": 0.0, "maxTokens": 48, **options})
    ended = editor.wait(turn, 120)
    return turn.texts(), ended


def test_the_second_turn_of_a_chat_prefills_only_the_new_tokens(editor: Editor) -> None:
    model = editor.model("smollm2")
    answer, first = said(editor, model["id"], CAPITAL)
    assert first["finishReason"] == "stop"
    assert answer
    second_text, second = said(editor, model["id"], CAPITAL, answer, "And of Italy?")
    assert second_text
    before = first["usage"]["reused"] + first["usage"]["prefilled"] + first["usage"]["generated"]
    slack = SLACK[model["backend"]]
    assert second["usage"]["reused"] >= before - slack, (first, second)
    whole = second["usage"]["reused"] + second["usage"]["prefilled"]
    assert second["usage"]["prefilled"] <= whole - before + slack, (first, second)
    _, third = said(editor, model["id"], CAPITAL, answer, "And of Italy?", second_text, "And of Spain?")
    assert third["usage"]["reused"] >= whole + second["usage"]["generated"] - slack, (second, third)


def test_stop_ends_the_turn_and_the_next_one_is_sound(editor: Editor) -> None:
    model = editor.model("smollm2")["id"]
    turn = editor.turn(model, "Write a very long story about a river.", options={"maxTokens": 400})
    editor.until(lambda: len([event for event in turn.events if event["type"] == "text"]) > 3, "some text", 120)
    editor.cancel(turn)
    with pytest.raises(LspError) as caught:
        editor.wait(turn)
    assert caught.value.code == -32800
    editor.until(lambda: editor.request("modeld/status")["busy"] is None, "the slot is free")
    answer, ended = said(editor, model, CAPITAL)
    assert ended["finishReason"] == "stop"
    assert "Paris" in answer


@pytest.mark.llama
def test_switch_unload_and_forecast(home: Home) -> None:
    home.start("llama")
    with window(home) as editor:
        editor.initialize()
        editor.until(lambda: editor.model("smollm2")["fit"], "a forecast, once the header is read")
        smol, gemma = editor.model("smollm2"), editor.model("gemma")
        assert smol["fit"]["verdict"] == "fits"
        loaded = editor.request("modeld/load", {"model": smol["id"]}, 120)
        assert (loaded["model"], loaded["fresh"]) == (smol["id"], True)
        reported = editor.request("modeld/describe", {"model": gemma["id"]})
        assert reported["switch"] == (
            f"Switching from {smol['id']} to {gemma['id']} will unload {smol['id']} and drop its warm context"
        )
        with pytest.raises(LspError) as caught:
            editor.request("modeld/load", {"model": gemma["id"]})
        assert caught.value.kind == "model_switch_required"
        assert editor.request("modeld/switch", {"model": gemma["id"]}, 120)["model"] == gemma["id"]
        assert not editor.asked  # nobody else uses it
        counted = editor.request("modeld/count", {"model": gemma["id"], "text": ["Hello there, general."]})
        assert counted["exact"]
        assert 3 <= counted["total"] <= 10
        _, ended = said(editor, "", CAPITAL)  # the pick moved with the switch
        assert ended["model"] == gemma["id"]
        freed = editor.request("modeld/unload")
        assert freed["model"] == gemma["id"]
        assert freed["freedBytes"] > 0
        editor.until(lambda: editor.request("modeld/status")["slot"] == "Empty", "an empty slot")
