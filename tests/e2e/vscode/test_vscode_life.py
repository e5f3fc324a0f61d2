"""Reloads, crashes and other windows: nothing is lost, no bridge is left, and nobody's model is taken unasked."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from clients.home import Home
from clients.vscode import Editor, Window, ended

pytestmark = [pytest.mark.e2e, pytest.mark.editor]


def _one_other(window: Window, editor: Editor, old: psutil.Process) -> psutil.Process:
    """The bridge that took the place of `old`, and no further one."""
    window.until(lambda: ended(old), "the old bridge is gone")
    window.until(lambda: len([one for one in editor.bridges() if one != old]) == 1, "one new bridge")
    return editor.bridges()[0]


def test_a_reloaded_window_has_its_models_at_once_and_one_bridge(editor: Editor, window: Window) -> None:
    (old,) = editor.bridges()
    window.page.reload(wait_until="commit")
    window.painted()
    window.until(lambda: "alpha" in window.picked(), "the models are back")
    _one_other(window, editor, old)
    window.shot("life-1-reloaded")


def test_a_killed_bridge_comes_back_silently(editor: Editor, window: Window) -> None:
    (old,) = editor.bridges()
    before = window.model_label()
    old.kill()
    _one_other(window, editor, old)
    assert window.model_label() == before
    assert window.toasts() == []
    window.new_chat()
    window.ask("quince")
    window.said("quince11")


def test_a_killed_daemon_is_said_and_started_by_a_click(scripted: Home, editor: Editor, window: Window) -> None:
    window.new_chat()
    window.ask("zeppelin")
    window.said("zep9")
    psutil.Process(scripted.status()["pid"]).send_signal(signal.SIGKILL)
    window.until(lambda: "Try Again" in window.chat.inner_text(), "the turn ends with a sentence")
    window.shot("life-3-daemon-killed")
    assert "modeld" in window.chat.inner_text()
    window.until(lambda: "modeld" in window.status() and "loaded" not in window.status(), "the status bar says so")
    scripted.start("scripted")
    window.new_chat()
    window.until(lambda: "No model is loaded" in window.status() or "no model" in window.status(), "it runs again")
    window.ask("quince")
    window.said("quince11")
    assert len(editor.bridges()) == 1


def test_a_second_window_asks_before_it_takes_the_model(
    scripted: Home, editor: Editor, window: Window, open_window: Callable[[], Window]
) -> None:
    window.new_chat()
    window.ask("quince")
    window.said("quince11")
    assert scripted.status()["active"]["name"] == "alpha"
    second = open_window().ready()
    assert len(editor.bridges()) == 2
    second.run("Local Models: Choose Model")
    widget = second.page.locator(".quick-input-widget")
    second.until(lambda: "beta" in widget.inner_text(), "our picker")
    second.page.keyboard.type("beta")
    second.page.keyboard.press("Enter")
    second.run("Local Models: Open Chat")
    second.panel.locator("#input").fill("quince")
    second.panel.locator("#input").press("Enter")
    second.page.locator(".monaco-dialog-box").wait_for(state="visible")
    second.shot("life-4-switch")
    said = second.dialog("Cancel")
    assert "Switching from alpha to beta will unload alpha and drop its warm context" in said
    assert scripted.status()["active"]["name"] == "alpha"
    answer = second.panel.locator("article").last
    second.until(lambda: "declined" in answer.inner_text(), "the refusal is said")
    answer.get_by_role("button", name="Retry").click()
    second.dialog("Switch now")
    second.until(lambda: "quince11" in second.panel.locator("article").last.inner_text(), "beta answers")
    assert scripted.status()["active"]["name"] == "beta"
    window.until(lambda: any("switched from alpha to beta" in toast for toast in window.toasts()), "told once")
    window.shot("life-5-switched-away")
    second.page.close()
    window.until(lambda: len(editor.bridges()) == 1, "the bridge of the closed window is gone", 30)


def test_a_killed_extension_host_takes_its_bridge_along_and_comes_back(editor: Editor, window: Window) -> None:
    (old,) = editor.bridges()
    (host,) = editor.hosts()
    host.kill()
    _one_other(window, editor, old)
    window.until(lambda: "alpha" in window.picked(), "the models are back")
    window.shot("life-2-host-killed")
