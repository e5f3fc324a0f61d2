"""The whole way with real weights: a real VS Code with its own picker and chat, the bridge, modeld and llama.cpp.

The small models' templates know no tools, so the editor's Agent mode does not offer them; its Ask mode does.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from clients.home import Home
from clients.vscode import Editor, git
from clients.vscode_window import Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor, pytest.mark.model, pytest.mark.llama]

Status = Callable[[], dict[str, Any]]
SHORT = "What is the capital of France? Answer in one word."
#: as the editor shows them
SMALL, GEMMA = "SmolLM2-135M-marked", "gemma-3-270m-q4_k_m"
LONG = "Write the numbers from 1 to 1000, each on its own line."


@pytest.fixture(scope="module")
def real(marked: Path, gemma3: Path) -> Iterator[Home]:
    """A user with both small models, who has not started modeld yet."""
    with Home(MODELD_BACKEND="llama", MODELD_TURN_TOKENS="150", MODELD_THREADS="1") as home:
        folder = home.folder / "weights"
        folder.mkdir()
        for path in (marked, gemma3):
            (folder / path.name).symlink_to(path)
        home.environ["MODELD_MODEL_FOLDERS"] = str(folder)
        yield home


@pytest.fixture(scope="module")
def small(real: Home) -> str:
    """The model that can fill in."""
    return real.model("smollm2")


@pytest.fixture(scope="module", autouse=True)
def world(editor: Editor, real: Home) -> Iterator[None]:
    """The editor's bridges serve that user; its chat is in Ask mode."""
    with editor.set(**{"chat.agent.enabled": False}), editor.world(real):
        yield


@pytest.fixture
def loaded(real: Home, window: Window, status: Status, small: str) -> str:
    """The small model, loaded and picked, whatever the tests before have left."""
    if not status():
        real.start("llama")
    active = (status()["active"] or {}).get("name")
    if active not in (None, small):
        real.run("modeld", "unload")
    if active != small:
        real.run("modeld", "load", small)
    window.until(lambda: "is loaded" in window.status(), "the window has seen it")
    if SMALL not in window.picked():
        window.choose(SMALL)
    return small


def _only_bridge(window: Window, *gone: psutil.Process) -> psutil.Process:
    found: psutil.Process = window.until(lambda: window.editor.only_bridge(*gone), "one bridge, and no old one")
    return found


def _answered(window: Window, status: Status, model: str) -> None:
    """A question in the editor's own chat, answered to its end by the model."""
    before = status().get("last_turn")
    window.until(lambda: SMALL in window.picked(), "the native picker shows it")
    window.answered(SHORT, lambda: status().get("last_turn") not in (None, before), "the turn ends")
    window.until(lambda: window.answer().strip(), "it says something")  # what so small a model says is its own affair
    last = status()["last_turn"]
    assert (last["model"], last["finish_reason"] in ("stop", "length")) == (model, True)


def test_absent_started_picked_answered_and_stopped(window: Window, status: Status, small: str) -> None:
    answer = window.ask_panel(SHORT)
    answer.get_by_role("button", name="Start modeld").click()
    window.until(lambda: "no model is loaded" in window.status(), "modeld runs")
    window.new_chat()
    window.choose(SMALL)
    window.shot("weights-1-picked")
    assert status()["active"] is None, "a pick alone loads nothing"
    _answered(window, status, small)
    window.shot("weights-2-answer")
    assert status()["active"]["name"] == small
    window.ask(LONG)
    window.until(lambda: (status()["busy"] or {}).get("stage") == "generating", "text flows")
    window.stop()
    window.until(lambda: status()["state"] == "Ready", "the engine is idle")
    assert status()["last_turn"]["finish_reason"] == "cancelled"
    _only_bridge(window)


def _ghost(window: Window, status: Status) -> None:
    """Ghost text. The editor takes its question back when anything moves meanwhile, and asks again at the next key."""
    patience = time.monotonic()

    def shown() -> bool:
        nonlocal patience
        if status()["busy"]:
            patience = time.monotonic() + 3.0  # what is on its way may come
        if time.monotonic() > patience:
            patience = time.monotonic() + 3.0
            window.page.keyboard.press("Backspace")
            window.page.keyboard.type(" ")
        return bool(window.ghost().strip())

    window.until(shown, "ghost text")


@pytest.mark.usefixtures("loaded")
def test_ghost_text_and_a_commit_message(editor: Editor, window: Window, status: Status) -> None:
    (editor.workspace / "ghost.py").write_text("def add(a, b):\n    \n\nprint(add(1, 2))\n", encoding="utf-8")
    with editor.set(**{"modeld.inlineCompletion.enabled": True}):
        window.open_file("ghost.py")
        window.page.keyboard.press("Control+Home")
        window.page.keyboard.press("ArrowDown")
        window.page.keyboard.press("End")
        _ghost(window, status)
        window.shot("weights-5-ghost")
        before = window.text()
        window.page.keyboard.press("Tab")
        window.until(lambda: len(window.text()) > len(before), "it is accepted")
    window.run("View: Revert and Close Editor")
    (editor.workspace / "lamp.txt").write_text("The lamp is green.\n", encoding="utf-8")
    git(editor, "add", "lamp.txt")
    window.staged("lamp.txt")
    window.run("Local Models: Write Commit Message")
    window.until(lambda: window.commit_box().strip(), "a message")
    window.shot("weights-6-commit")


def test_a_killed_bridge_a_killed_host_and_a_reload_leave_one_bridge_that_answers(
    editor: Editor, window: Window, status: Status, loaded: str
) -> None:
    bridge = _only_bridge(window)
    bridge.kill()
    second = _only_bridge(window, bridge)
    _answered(window, status, loaded)
    window.until(editor.only_host, "the hosts of closed windows are gone").kill()
    third = _only_bridge(window, bridge, second)
    window.until(lambda: SMALL in window.picked(), "the models are back")
    window.reload()
    _only_bridge(window, bridge, second, third)
    window.until(lambda: window.chat.locator(".interactive-response").count(), "the conversation is back")
    _answered(window, status, loaded)


def test_a_restarted_and_a_killed_daemon_leave_the_pick_and_the_next_turn(
    real: Home, window: Window, status: Status, loaded: str
) -> None:
    before = status()["pid"]
    real.run("modeld", "restart")
    window.until(lambda: status().get("instance") and "modeld" in window.status(), "it is back")
    assert SMALL in window.picked()
    _answered(window, status, loaded)
    # behind the many questions about France in this chat, so small a model answers every question with Paris
    window.new_chat()
    window.until(lambda: SMALL in window.picked(), "the pick is the new chat's too")
    window.ask(LONG)
    window.until(lambda: (status()["busy"] or {}).get("stage") == "generating", "text flows")
    psutil.Process(status()["pid"]).send_signal(signal.SIGKILL)
    window.said("modeld ended unexpectedly")
    window.shot("weights-7-killed")
    assert SMALL in window.picked()
    real.start("llama")
    window.until(lambda: "no model is loaded" in window.status(), "it runs again")
    _answered(window, status, loaded)
    assert status()["pid"] != before
    _only_bridge(window)


def test_a_second_window_switches_after_the_warning(
    real: Home, editor: Editor, window: Window, status: Status, small: str, open_window: Callable[..., Window]
) -> None:
    gemma = real.model("gemma")
    mine = _only_bridge(window)
    other = open_window().ready(GEMMA)
    assert len(editor.bridges()) == 2
    other.choose(GEMMA)
    other.ask(LONG)
    other.page.locator(".monaco-dialog-box").wait_for(state="visible")
    other.shot("weights-3-switch")
    said = other.dialog("Switch now")
    assert f"will unload {small} and drop its warm context" in said
    other.until(lambda: (status()["active"] or {}).get("name") == gemma, "the switch")
    other.until(lambda: status()["state"] == "Ready" or other.answer(), "gemma answers")
    other.shot("weights-4-switched")
    theirs = [bridge for bridge in editor.bridges() if bridge != mine]
    other.page.close()
    assert _only_bridge(window, *theirs) == mine
    window.until(lambda: status()["state"] == "Ready", "the answer of a window that is gone is ended")
