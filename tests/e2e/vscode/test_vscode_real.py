"""The whole way with real weights: a real VS Code, the bridge, modeld and llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.home import Home
from clients.vscode import VIEWPORT, Editor, Window, copy_workspace, git

pytestmark = [pytest.mark.e2e, pytest.mark.editor, pytest.mark.model, pytest.mark.llama]


@pytest.fixture(scope="module")
def real(smollm2: Path, gemma3: Path) -> Iterator[Home]:
    """A user with both small models and a running llama.cpp."""
    assert smollm2.parent == gemma3.parent
    with Home(MODELD_MODEL_FOLDERS=str(smollm2.parent)) as home:
        home.start("llama")
        yield home


@pytest.fixture(scope="module")
def editor(real: Home) -> Iterator[Editor]:
    """Their editor."""
    with Editor(real) as served:
        copy_workspace(served, {"demo.py": "def add(a, b):\n    return a + b\n"})
        git(served, "init")
        git(served, "add", ".")
        git(served, "commit", "-m", "Begin")
        yield served
        served.stop()
        assert not served.bridges(), "bridges outlived the editor"


@pytest.fixture(scope="module")
def window(editor: Editor, browser: Any) -> Iterator[Window]:
    """One window, with both models in our picker."""
    context = browser.new_context(viewport=VIEWPORT)
    opened = Window(editor, context.new_page()).open()
    opened.until(editor.bridges, "a bridge runs", 90)
    yield opened
    context.close()


def _pick(window: Window, part: str) -> None:
    window.run("Local Models: Choose Model")
    widget = window.page.locator(".quick-input-widget")
    window.until(lambda: part.lower() in widget.inner_text().lower(), f"our picker has {part}", 60)
    window.page.keyboard.type(part)
    window.page.keyboard.press("Enter")


def _ask(window: Window, text: str) -> Any:
    window.run("Local Models: Open Chat")
    window.panel.locator("#input").fill(text)
    window.panel.locator("#input").press("Enter")
    return window.panel.locator("article").last


def test_pick_answer_stop_and_switch(
    real: Home, editor: Editor, window: Window, open_window: Callable[[], Window]
) -> None:
    smollm2, gemma3 = real.model("SmolLM2"), real.model("gemma")
    _pick(window, "SmolLM2")
    answer = _ask(window, "What is the capital of France? Answer in one word.")
    window.until(lambda: "tokens/s" in answer.inner_text(), "the answer ends", 120)
    window.shot("real-1-answer")
    assert answer.locator(".answer").inner_text().strip()  # what so small a model says is its own affair
    assert real.status()["active"]["name"] == smollm2
    first = real.status()["last_turn"]["usage"]

    answer = _ask(window, "And of Italy? One word.")
    window.until(lambda: "were warm" in answer.inner_text(), "the second answer ends", 60)
    usage = real.status()["last_turn"]["usage"]
    assert usage["reused"] >= first["prefilled"] - 8, (first, usage)
    assert usage["prefilled"] < 60, usage

    answer = _ask(window, "Write the numbers from 1 to 1000, each on its own line.")
    window.until(lambda: real.status()["state"] == "Busy" and answer.locator(".answer").inner_text(), "text flows", 60)
    window.panel.locator("#stop").click()
    window.until(lambda: real.status()["state"] == "Ready", "the engine is idle")
    assert real.status()["last_turn"]["finish_reason"] == "cancelled"

    other = open_window()
    other.until(lambda: len(editor.bridges()) == 2, "the second window has its bridge", 90)
    _pick(other, "gemma")
    _ask(other, "Hello")
    other.page.locator(".monaco-dialog-box").wait_for(state="visible")
    other.shot("real-2-switch")
    said = other.dialog("Switch now")
    assert f"will unload {smollm2} and drop its warm context" in said
    other.until(lambda: (real.status()["active"] or {}).get("name") == gemma3, "the switch", 120)
    other.until(lambda: real.status()["state"] == "Busy", "gemma answers", 60)
    other.panel.locator("#stop").click()
    other.until(lambda: real.status()["state"] == "Ready", "the engine is idle")
    other.shot("real-3-switched")


def test_a_commit_message_of_a_real_model(editor: Editor, window: Window) -> None:
    (editor.workspace / "lamp.txt").write_text("The lamp is green.\n", encoding="utf-8")
    git(editor, "add", "lamp.txt")
    window.page.locator('.activitybar [aria-label^="Source Control"]').first.click()
    view = window.page.locator(".scm-view").first
    window.until(lambda: "lamp.txt" in view.inner_text(), "the staged file", 60)
    window.run("Local Models: Write Commit Message")
    box = view.locator(".scm-editor .view-lines").first
    window.until(lambda: box.inner_text().strip(), "a message", 120)
    window.shot("real-4-commit")
