"""The editor's own chat with local models: picker, turns, Stop, history, and the gap of a restart."""

from __future__ import annotations

import pytest

from clients.home import Home
from clients.vscode import Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor]


def test_a_turn_streams_from_the_model_in_the_native_picker(scripted: Home, window: Window) -> None:
    window.shot("chat-1-ready")
    window.ask("quince please")
    window.said("quince11")
    window.shot("chat-2-answer")
    last = scripted.status()["last_turn"]
    assert last["model"] == "alpha"
    assert last["finish_reason"] == "stop"
    assert "Unlocks" not in "".join(window.toasts())


def test_the_next_turn_prefills_only_what_is_new(scripted: Home, window: Window) -> None:
    # The editor itself changes its instructions once after its start; from then on it repeats them word for word.
    window.ask("quince again")
    window.until(lambda: window.chat.inner_text().count("quince11") >= 2, "the second answer")
    before = scripted.status()["last_turn"]["usage"]
    window.ask("quince and again")
    window.until(lambda: window.chat.inner_text().count("quince11") >= 3, "the third answer")
    usage = scripted.status()["last_turn"]["usage"]
    # The vocabulary is one of bytes: what is new is one answer and one question in the editor's wrapping.
    assert usage["reused"] >= before["prefilled"] + before["reused"] - 16, (before, usage)
    assert usage["prefilled"] < 1500, usage


def test_the_participant_answers_with_the_local_model(scripted: Home, window: Window) -> None:
    window.new_chat()
    window.ask("@local quince")
    window.said("quince11")
    window.shot("chat-6-participant")
    assert scripted.status()["last_turn"]["usage"]["prefilled"] < 1000, "none of the editor's own instructions"


def test_stop_frees_the_slot(scripted: Home, window: Window) -> None:
    window.new_chat()
    window.ask("zeppelin")
    window.said("zep9")
    assert scripted.status()["state"] == "Busy"
    window.stop()
    window.until(lambda: scripted.status()["state"] == "Ready", "the engine is idle")
    assert scripted.status()["last_turn"]["finish_reason"] == "cancelled"
    window.shot("chat-3-stopped")


def test_the_picker_keeps_its_entries_and_the_pick_while_modeld_restarts(scripted: Home, window: Window) -> None:
    window.new_chat()
    before = window.offered()
    assert any("alpha" in row for row in before)
    assert any("beta" in row for row in before)
    scripted.run("modeld", "stop")
    window.until(lambda: "stopped" in window.status(), "the status bar says so")
    during = window.offered()
    window.shot("chat-4-away")
    assert _names(during) == _names(before)
    assert window.model_label() == "alpha"
    window.ask("anybody there")
    window.said("modeld stopped")
    window.shot("chat-5-gap")
    assert "Language model unavailable" not in window.chat.inner_text()
    scripted.start("scripted")
    window.until(lambda: "stopped" not in window.status() and window.status(), "the status bar recovers")
    assert _names(window.offered()) == _names(before)
    window.ask("quince once more")
    window.said("quince11")


def test_another_model_of_the_native_picker_is_loaded_by_its_first_turn(scripted: Home, window: Window) -> None:
    window.new_chat()
    window.choose("beta")
    assert (scripted.status()["active"] or {}).get("name") == "alpha", "a pick alone loads nothing"
    window.ask("quince from the other")
    window.said("quince11")
    assert scripted.status()["active"]["name"] == "beta"
    window.shot("chat-7-other")


def _names(rows: list[str]) -> list[str]:
    return [row for row in rows if row in ("alpha", "beta")]
