"""The editor's own chat with local models: picker, turns, Stop, history, and the gap of a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clients.home import Home
from clients.vscode_window import Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor]

Status = Callable[[], dict[str, Any]]


@pytest.mark.core_editor
def test_a_turn_streams_from_the_model_in_the_native_picker(window: Window, status: Status) -> None:
    window.shot("chat-1-ready")
    window.turn("quince please", "quince11")
    window.shot("chat-2-answer")
    last = status()["last_turn"]
    assert last["model"] == "alpha"
    assert last["finish_reason"] == "stop"
    assert "Unlocks" not in "".join(window.toasts())


def test_the_next_turn_prefills_only_what_is_new(window: Window, status: Status) -> None:
    # The editor itself changes its instructions once after its start; from then on it repeats them word for word.
    window.turn("quince again", "quince11")
    before = status()["last_turn"]["usage"]
    window.turn("quince and again", "quince11")
    usage = status()["last_turn"]["usage"]
    # The vocabulary is one of bytes: what is new is one answer and one question in the editor's wrapping.
    assert usage["reused"] >= before["prefilled"] + before["reused"] - 16, (before, usage)
    assert usage["prefilled"] < 1500, usage


def test_the_participant_answers_with_the_local_model(window: Window, status: Status) -> None:
    window.new_chat()
    window.ask("@local quince")
    window.said("quince11")
    window.shot("chat-6-participant")
    assert status()["last_turn"]["usage"]["prefilled"] < 1000, "none of the editor's own instructions"


@pytest.mark.core_editor
def test_stop_frees_the_slot(window: Window, status: Status) -> None:
    window.new_chat()
    window.ask("zeppelin")
    window.said("zep9")
    assert status()["state"] == "Busy"
    window.stop()
    window.until(lambda: status()["state"] == "Ready", "the engine is idle")
    assert status()["last_turn"]["finish_reason"] == "cancelled"
    window.shot("chat-3-stopped")


def test_thoughts_are_kept_out_of_the_answer(window: Window, status: Status) -> None:
    window.new_chat()
    window.ask("rosemary")
    window.said("ripe7")
    window.shot("chat-8-thoughts")
    assert status()["last_turn"]["finish_reason"] == "stop"
    assert "muse3" not in window.answer(), "this editor takes thoughts from its own extensions alone"


@pytest.mark.core_editor
def test_the_picker_keeps_its_entries_and_the_pick_while_modeld_restarts(scripted: Home, window: Window) -> None:
    window.new_chat()
    before = window.offered("alpha", "beta")
    scripted.run("modeld", "stop")
    window.until(lambda: "not running" in window.status(), "the status bar says so")
    during = window.offered("alpha", "beta")
    window.shot("chat-4-away")
    assert _names(during) == _names(before)
    assert "alpha" in window.picked()
    window.ask("anybody there")
    window.said("modeld is not running")
    window.shot("chat-5-gap")
    assert "Language model unavailable" not in window.chat.inner_text()
    scripted.start("scripted")
    window.until(lambda: "not running" not in window.status() and window.status(), "the status bar recovers")
    assert _names(window.offered("alpha", "beta")) == _names(before)
    window.ask("quince once more")
    window.said("quince11")


def test_another_model_of_the_native_picker_is_loaded_by_its_first_turn(window: Window, status: Status) -> None:
    window.new_chat()
    window.choose("beta")
    assert (status()["active"] or {}).get("name") == "alpha", "a pick alone loads nothing"
    window.ask("quince from the other")
    window.said("quince11")
    assert status()["active"]["name"] == "beta"
    window.shot("chat-7-other")
    window.choose("alpha")


def _names(rows: list[str]) -> list[str]:
    return [row for row in rows if row in ("alpha", "beta")]
