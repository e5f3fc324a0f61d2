"""What works with nobody signed in: our panel, our picker, ghost text, commands and the commit message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.home import Home
from clients.script import write_script
from clients.vscode import Editor, git
from clients.vscode_window import QUICK_INPUT, Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor]

Status = Callable[[], dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def as_it_comes(editor: Editor) -> Iterator[None]:
    """The editor as it comes: its own chat would ask to sign in."""
    with editor.set(**{"chat.allowAnonymousAccess": False}):
        yield


def test_the_picker_groups_models_and_shows_what_may_be_done(scripted: Home, window: Window) -> None:
    scripted.run("modeld", "unload")
    window.run("Local Models: Choose Model")
    widget = window.page.locator(QUICK_INPUT)
    window.until(lambda: "Installed" in widget.inner_text() and "beta" in widget.inner_text(), "our picker")
    shown = widget.inner_text()
    window.shot("panel-1-picker")
    for text in ("alpha", "not loaded", "Fetch a model", "Stop modeld"):
        assert text in shown, shown
    window.page.keyboard.press("Escape")
    window.pick("beta")
    window.run("Local Models: Open Chat")
    window.until(lambda: window.panel.locator("#model").inner_text() == "beta", "the chip shows the pick")


@pytest.mark.core_editor
def test_the_name_of_a_file_is_neither_a_link_nor_an_icon(scripted: Home, window: Window) -> None:
    broken = Path(scripted.root) / "models" / "[Fix it](command:workbench.action.terminal.new) $(alert).gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    try:
        scripted.run("modeld", "library", "refresh")
        window.run("Local Models: Choose Model")
        widget = window.page.locator(QUICK_INPUT)
        rows = widget.locator(".quick-input-list")
        widget.locator(".quick-input-titlebar .codicon-refresh").click()
        widget.locator("input.input").fill("Fix it")  # a long list draws only what is seen
        window.until(lambda: "Fix it" in rows.inner_text(), "our picker has the broken file")
        assert rows.locator(".codicon-alert").count() == 0
        rows.locator(".monaco-list-row", has_text="Fix it").first.click()
        reported = window.toast("cannot be used")
        window.shot("panel-7-broken-file")
        assert "[Fix it] (command:workbench.action.terminal.new) $ (alert)" in reported
        assert window.page.locator(".notification-list-item-message a").count() == 0
    finally:
        broken.unlink()
        scripted.run("modeld", "library", "refresh")
        window.page.keyboard.press("Escape")


@pytest.mark.core_editor
def test_the_panel_streams_markdown_without_an_account(window: Window, status: Status) -> None:
    window.pick("beta")
    answer = window.ask_panel("marzipan")
    window.until(lambda: "no" in answer.inner_text() and "Retry" in answer.inner_text(), "the answer ends")
    window.shot("panel-2-answer")
    assert answer.locator("strong").inner_text() == "bold"
    assert "return a * b" in answer.locator("pre").last.inner_text()
    assert answer.locator(".answer b").count() == 0, "a tag of the model became one of the page"
    assert "<b>no</b>" in answer.inner_text()
    assert status()["last_turn"]["model"] == "beta"


def test_thoughts_are_folded_away(window: Window) -> None:
    answer = window.ask_panel("rosemary")
    window.until(lambda: "Retry" in answer.inner_text(), "the answer ends")
    window.shot("panel-9-thoughts")
    thoughts = answer.locator("details")
    assert "muse3" not in answer.inner_text(), "folded"
    thoughts.locator("summary").click()
    assert "muse3" in thoughts.inner_text()
    assert answer.locator(".answer").inner_text().split() == [f"ripe{index}" for index in range(8)]


def test_stop_and_retry_in_the_panel(window: Window, status: Status) -> None:
    answer = window.ask_panel("zeppelin")
    window.until(lambda: "zep9" in answer.inner_text(), "text flows")
    window.panel.locator("#stop").click()
    window.until(lambda: status()["state"] == "Ready", "the engine is idle")
    window.until(lambda: "Stopped." in answer.inner_text(), "the panel says so")
    window.shot("panel-3-stopped")
    answer.get_by_role("button", name="Retry").click()
    window.until(lambda: status()["state"] == "Busy", "asked again")
    window.panel.locator("#input").press("Escape")
    window.until(lambda: status()["state"] == "Ready", "stopped by Escape")


def test_a_load_shows_its_progress_and_can_be_cancelled(scripted: Home, window: Window, status: Status) -> None:
    write_script(scripted, load_s=60.0)
    scripted.run("modeld", "unload")
    answer = window.ask_panel("quince")
    window.until(lambda: "Loading beta" in answer.inner_text(), "the panel shows the load")
    window.until(lambda: any("Loading beta" in toast for toast in window.toasts()), "so does a notification")
    window.shot("panel-7-loading")
    window.page.locator(".notifications-toasts").get_by_role("button", name="Cancel").click()
    window.until(lambda: status()["state"] == "Empty", "the load is undone")
    window.until(lambda: window.panel.locator("#send").is_visible(), "the turn has ended")
    window.shot("panel-8-load-cancelled")
    write_script(scripted)
    answer.get_by_role("button", name="Retry").click()
    window.until(lambda: "quince11" in window.panel.locator("article").last.inner_text(), "the next load works")


@pytest.mark.core_editor
def test_code_of_an_answer_is_applied_as_a_change_that_is_seen_first(window: Window, editor: Editor) -> None:
    window.open_file("demo.py")
    window.page.keyboard.press("Control+Home")
    window.page.keyboard.press("Shift+ArrowDown")
    window.page.keyboard.press("Shift+ArrowDown")
    window.run("Local Models: Open Chat")
    window.panel.locator("#clear").click()
    attach = window.panel.locator("#attach")
    attach.wait_for(state="visible")
    assert attach.inner_text() == "demo.py:1-2"
    attach.click()
    window.panel.locator("#input").fill("marzipan")
    window.panel.locator("#input").press("Enter")
    answer = window.panel.locator("article").last
    window.until(lambda: "Retry" in answer.inner_text(), "the answer ends")
    # another program writes the file, and it is opened again: its version is the one it had, its lines are not
    window.run("View: Close All Editors")
    path = editor.workspace / "demo.py"
    header = "# one\n# two\nimport os\n\n"
    path.write_text(header + path.read_text())
    answer.get_by_role("button", name="Apply").click()
    window.until(lambda: window.page.locator(".monaco-diff-editor").count(), "a diff is shown")
    window.page.wait_for_timeout(300)
    window.shot("panel-4-diff")
    window.run("Local Models: Accept Change")
    window.until(lambda: not window.page.locator(".monaco-diff-editor").count(), "the diff is closed")
    window.page.keyboard.press("Control+S")
    window.until(lambda: "def mul" in path.read_text(), "the file is changed")
    assert path.read_text() == f"{header}def mul(a, b):\n    return a * b\n\n\nprint(add(1, 2))\n"
    answer.get_by_role("button", name="Apply").click()
    window.toast("no longer in demo.py")
    assert not window.page.locator(".monaco-diff-editor").count()


def test_ghost_text_comes_once_it_is_switched_on(
    scripted: Home, editor: Editor, window: Window, status: Status
) -> None:
    if status()["active"] is None:
        scripted.run("modeld", "load", "beta")
    window.open_file("demo.py")
    window.page.keyboard.press("Control+End")
    window.page.keyboard.type("\ndef more(a, b):\n")
    window.page.wait_for_timeout(500)
    assert not window.ghost(), "off means off"
    window.run("Local Models: Turn Inline Completion")
    bar = window.page.locator(".part.statusbar")
    window.until(lambda: "modeld is on" in bar.inner_text(), "it is switched on")
    window.to_text()
    window.page.keyboard.press("Control+End")
    window.page.keyboard.type(" ")
    window.until(lambda: "return" in window.ghost(), "ghost text")
    window.shot("panel-5-ghost")
    window.page.keyboard.press("Tab")
    window.until(lambda: "return a + b" in window.text().partition("more")[2], "it is accepted")
    window.run("Local Models: Turn Inline Completion")
    window.until(lambda: "modeld is off" in bar.inner_text(), "it is switched off")
    editor.configure()  # the file as the other tests know it


def test_a_commit_message_from_what_is_staged(window: Window, editor: Editor) -> None:
    (editor.workspace / "second.txt").write_text("2\n")
    git(editor, "add", "second.txt")
    window.staged("second.txt")
    window.run("Local Models: Write Commit Message")
    window.until(lambda: "second number" in window.commit_box(), "the message")
    window.shot("panel-6-commit")
    assert window.commit_box() == "Add a second number"
